/* The host's copy of the tables. */
#include "quant/codebook_table.h"
