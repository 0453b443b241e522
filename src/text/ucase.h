/* Case mappings and classes of code points as Python's str methods see them. Pure functions; any thread. */
#ifndef MICA_TEXT_UCASE_H
#define MICA_TEXT_UCASE_H

#include <stdbool.h>

/* The mapping of one code point: 1 to 3 code points; the number is returned. */
int ucase_upper(unsigned cp, unsigned out[3]);
int ucase_lower(unsigned cp, unsigned out[3]); // without the rule of final sigma
int ucase_title(unsigned cp, unsigned out[3]);
int ucase_fold(unsigned cp, unsigned out[3]);

bool ucase_is_lower(unsigned cp);
bool ucase_is_upper(unsigned cp);
bool ucase_is_title(unsigned cp);
bool ucase_is_cased(unsigned cp);
bool ucase_is_ignorable(unsigned cp); // Case_Ignorable
bool ucase_is_alpha(unsigned cp);
bool ucase_is_decimal(unsigned cp);
bool ucase_is_digit(unsigned cp);
bool ucase_is_numeric(unsigned cp);
bool ucase_is_printable(unsigned cp);
bool ucase_is_name(unsigned cp, bool first); // may stand in an identifier
#endif
