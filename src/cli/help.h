/* Help made from the tables of commands and flags. */
#ifndef MICA_CLI_HELP_H
#define MICA_CLI_HELP_H

#include "cli/command.h"

#include <stdio.h>

void help_page(FILE *to, const command *c); // usage, text and flags of one command
/* `text` from column `indent` on, broken between words to 80 columns, and a newline. */
void help_wrapped(FILE *to, const char *text, int indent);
void help_first_steps(FILE *to); // for who typed the program's name and nothing else
#endif
