/* Writes the first inputs of fuzz_tokenize into a folder: a vocabulary and a text for each tokenizer and
 * split. seed_tokenize DIR */
#include <stdio.h>

static const char vocabulary[] =
    "T3<|im_start|>\nT3<|im_end|>\nT4<think>\nT4\n\nT1ab\nT1\xC4\xA0th\nT1\xE2\x96\x81th\n"
    "T2<unk>\nT5<unused>\nT6<0x41>\nMa b\nM\xC4\xA0 t\nM\xC4\xA0t h\nM\xE2\x96\x81 t\nMx yz\n\n";
static const char text[] =
    "<|im_start|>user\nit's the 1234th \xE5\x8C\x97\xE4\xBA\xAC caf\xC3\xA9  \n\n\t"
    "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 <think>\xFF\xC3<|im_end|>\n<0x41>\xE2\x96\x81 aaaaaaaa";

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    for (int which = 0; which < 24; which++)
        for (int flags = 0; flags < 2; flags++) {
            char path[1024];
            snprintf(path, sizeof path, "%s/t%02d-%d", argv[1], which, flags);
            FILE *f = fopen(path, "wb");
            if (!f) return 1;
            fputc(which, f);
            fputc(flags * 7 + 16 * flags, f);
            fwrite(vocabulary, 1, sizeof vocabulary - 1, f);
            fwrite(text, 1, sizeof text - 1, f);
            if (fclose(f) != 0) return 1;
        }
    return 0;
}
