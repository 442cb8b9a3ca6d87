/* nearest.c: the word that was probably meant. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "core/json.h"

enum { MAX_WORD = 63 };

static bool same(char a, char b) { return tolower((unsigned char)a) == tolower((unsigned char)b); }

static int least(int a, int b) { return a < b ? a : b; }

/* Edits (insert, delete, replace, swap of neighbours) that turn a into b, upper and lower case
 * alike; row i of the table holds the distances of a's first i characters. */
static int distance(const char *a, const char *b)
{
    int rows[3][MAX_WORD + 1];
    int n = (int)strlen(a), m = (int)strlen(b);
    for (int j = 0; j <= m; j++) rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            row[j] = above[j - 1] + !same(a[i - 1], b[j - 1]);
            row[j] = least(row[j], least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                row[j] = least(row[j], two_above[j - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

/* One begins with the other ("batch", "batch_size"). */
static bool one_begins_other(const char *a, const char *b)
{
    size_t shorter = strlen(a) < strlen(b) ? strlen(a) : strlen(b);
    return shorter >= 3 && strncasecmp(a, b, shorter) == 0;
}

const char *ebb__nearest(const char *word, const char *const words[], int n)
{
    size_t length = strlen(word);
    if (length == 0 || length > MAX_WORD) return NULL;
    int best_edits = length <= 2 ? 2 : length <= 5 ? 3 : (int)length / 3 + 1; /* one too many */
    const char *best = NULL;
    for (int i = 0; i < n; i++) {
        if (strlen(words[i]) > MAX_WORD) continue;
        int edits = distance(word, words[i]);
        if (edits >= best_edits) continue;
        best_edits = edits;
        best = words[i];
    }
    for (int i = 0; !best && i < n; i++)
        if (one_begins_other(word, words[i])) best = words[i];
    return best;
}
