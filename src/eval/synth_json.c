/* mica_synth and mica_synth_presets: synthetic models as the public header promises them. */
#include "eval/report.h"
#include "eval/synth.h"

mica_status mica_synth(char **json, const char *out_path, const mica_synth_options *opt, mica_error *err) {
    synth_report r;
    *json = NULL;
    TRY(synth_write(opt, out_path, &r, err));
    return report_text(json,
                       json_pack("{s:s, s:I, s:I, s:I, s:I}", "path", out_path, "parameters",
                                 (json_int_t)r.n_param, "tensors", (json_int_t)r.n_tensor, "bytes",
                                 (json_int_t)(opt->dry_run ? r.data_bytes : r.file_bytes), "bytes_per_token",
                                 (json_int_t)r.token_bytes),
                       err);
}

mica_status mica_synth_presets(char **json, mica_error *err) {
    json_t *list = json_array();
    for (size_t i = 0; synth_preset_name(i); i++) {
        json_array_append_new(
            list, json_pack("{s:s, s:s}", "name", synth_preset_name(i), "about", synth_preset_about(i)));
    }
    return report_text(json, list, err);
}
