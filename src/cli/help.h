/* Help made from the tables of commands and flags. */
#ifndef MICA_CLI_HELP_H
#define MICA_CLI_HELP_H

#include "cli/command.h"

#include <stdio.h>

void help_page(FILE *to, const command *c); // usage, text and flags of one command
void help_first_steps(FILE *to);            // for who typed the program's name and nothing else
#endif
