/* Sampling as the flags ask for it, over a model's own. */
#ifndef MICA_CLI_SAMPLING_H
#define MICA_CLI_SAMPLING_H

#include "cli/options.h"

/* *s comes as the model has it. Without --seed it gets a random one. */
void sampling_flags(mica_sampling *s, const options *o);

#endif
