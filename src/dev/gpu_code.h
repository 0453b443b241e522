/* Device code for a card: an object compiled ahead of time that stands in this program, else one compiled at
 * first use and kept on disk.
 *
 * Objects made by `make kern` are embedded beside the source text (kern_file); which are there depends on the
 * build. The cache (MICA_HOME/kernels) is keyed by a hash of text, options, instruction set and compiler; a
 * file of it is used only when its own hash is right, else it is made again. Threads: safe. */
#ifndef MICA_GPU_CODE_H
#define MICA_GPU_CODE_H

#include "dev/gpu_drv.h"

/* A file of src/kern and its friends ("kern/all.cuh"), or an object ("gfx1201.co.gz", "sm_90.cubin.gz",
 * "compute_80.ptx.gz"), as the build laid them down. */
typedef struct kern_file {
    const char *name;
    const void *data;
    uint64_t n_bytes;
} kern_file;

extern const kern_file mica_kern_files[];
extern const uint64_t mica_kern_file_count;

/* What module_load takes. *image is owned (mem_free), NULL for the simulated card. MICA_E_DEVICE says what
 * was missing. */
mica_status gpu_code_get(void **image, const gpu_card *card, mica_error *err);
/* The name of the embedded object that fits, or NULL: one of the same instruction set; for NVIDIA also one of
 * the same generation with a lower number, or PTX, which the driver compiles. */
const char *gpu_code_find(const kern_file *files, uint64_t n, const gpu_card *card);

#endif
