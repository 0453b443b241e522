/* Edit distance over the few candidates there are. The limit follows the shorter word: two letters have
 * hundreds of neighbours, and a wrong guess ("-fa: did you mean -hf?") is worse than none. */
#include "base/near.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static const char *letters(const char *word) {
    return word + strspn(word, "-/");
}

/* Edits (insert, delete, replace, swap neighbours) that make b of a; the words are short. */
static size_t edit_distance(const char *a, const char *b) {
    enum { LONGEST = 48 };
    const size_t na = strlen(a), nb = strlen(b);
    if (na > LONGEST || nb > LONGEST) return SIZE_MAX;
    size_t d[LONGEST + 1][LONGEST + 1];
    for (size_t i = 0; i <= na; i++) d[i][0] = i;
    for (size_t j = 0; j <= nb; j++) d[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        for (size_t j = 1; j <= nb; j++) {
            const int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            size_t best = d[i - 1][j - 1] + (x != y);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            const bool swapped = i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                                 y == tolower((unsigned char)a[i - 2]);
            if (swapped && d[i - 2][j - 2] + 1 < best) best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[na][nb];
}

const char *near_word(const char *word, const char *const *candidates, size_t n) {
    const char *best = NULL, *w = letters(word);
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        const char *c = letters(candidates[i]);
        const size_t shorter = strlen(w) < strlen(c) ? strlen(w) : strlen(c);
        const size_t d = edit_distance(w, c);
        if (d > (shorter + 1) / 4 || d >= best_distance) continue;
        best = candidates[i];
        best_distance = d;
    }
    return best;
}
