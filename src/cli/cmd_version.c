/* `mica version`: what a bug report needs to say about the program. */
#include "cli/command.h"
#include "cli/print.h"

#include "base/cpu.h"

static const char *compiler(void) {
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "unknown compiler";
#endif
}

mica_status cmd_version(const options *o, mica_error *err) {
    (void)err;
    cpu_topology cpu;
    cpu_topology_get(&cpu);
    const char *isa = cpu_isa_name(cpu_isa_best());
    if (o->json) {
        json_t *v = json_pack("{s:s, s:s, s:{s:s, s:s, s:i}}", "version", mica_version(), "compiler",
                              compiler(), "cpu", "name", cpu.model, "isa", isa, "threads", cpu.n_default);
        print_json(v);
        json_decref(v);
        return MICA_OK;
    }
    printf("mica %s\n", mica_version());
    printf("built with %s\n", compiler());
    printf("%s, %s, %d thread%s by default\n", cpu.model, isa, cpu.n_default, cpu.n_default == 1 ? "" : "s");
    return MICA_OK;
}
