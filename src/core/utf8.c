/* utf8.c: which bytes are a character. */
#include "core/json_scan.h"

/* The Unicode standard's table 3-7: the lead bytes, and the bounds of the second byte (which leave
 * out overlong forms, surrogates and what is beyond U+10FFFF). */
typedef struct utf8_row {
    unsigned char lead_min, lead_max, second_min, second_max;
    int length;
} utf8_row;

static const utf8_row rows[] = {
    { 0xC2, 0xDF, 0x80, 0xBF, 2 }, { 0xE0, 0xE0, 0xA0, 0xBF, 3 }, { 0xE1, 0xEC, 0x80, 0xBF, 3 },
    { 0xED, 0xED, 0x80, 0x9F, 3 }, { 0xEE, 0xEF, 0x80, 0xBF, 3 }, { 0xF0, 0xF0, 0x90, 0xBF, 4 },
    { 0xF1, 0xF3, 0x80, 0xBF, 4 }, { 0xF4, 0xF4, 0x80, 0x8F, 4 },
};

static const utf8_row *find_row(unsigned char lead)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (lead >= rows[i].lead_min && lead <= rows[i].lead_max) return &rows[i];
    return NULL;
}

int ebb__utf8_length(const char *text, size_t bytes, size_t at)
{
    const unsigned char *c = (const unsigned char *)text + at;
    if (at >= bytes) return 0;
    if (c[0] < 0x80) return 1;
    const utf8_row *row = find_row(c[0]);
    if (!row || (size_t)row->length > bytes - at) return 0;
    if (c[1] < row->second_min || c[1] > row->second_max) return 0;
    for (int i = 2; i < row->length; i++)
        if ((c[i] & 0xC0) != 0x80) return 0;
    return row->length;
}
