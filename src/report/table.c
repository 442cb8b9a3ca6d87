#include <ebb/report.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"

typedef char cell[EBB_TABLE_CELL_BYTES];

struct ebb_table {
    int n_columns;
    bool right[EBB_TABLE_COLUMNS];
    cell *cells; /* [n_rows, n_columns]; row 0 holds the titles */
    size_t n_rows, cap;
};

static ebb_status add_row(ebb_table *t, const char *const cells[])
{
    EBB_TRY(ebb__grow(&t->cells, &t->cap, (t->n_rows + 1) * (size_t)t->n_columns, sizeof(cell)));
    for (int i = 0; i < t->n_columns; i++)
        snprintf(t->cells[t->n_rows * (size_t)t->n_columns + (size_t)i], sizeof(cell), "%s",
                 cells[i]);
    t->n_rows++;
    return EBB_OK;
}

ebb_status ebb_table_new(ebb_table **out, int n_columns, const char *const titles[])
{
    if (n_columns < 1 || n_columns > EBB_TABLE_COLUMNS)
        return ebb_fail(EBB_EINVAL, "table: %d columns; 1 to %d", n_columns, EBB_TABLE_COLUMNS);
    ebb_table *t = ebb__calloc(1, sizeof(*t));
    if (!t) return EBB_ENOMEM;
    const char *plain[EBB_TABLE_COLUMNS];
    t->n_columns = n_columns;
    for (int i = 0; i < n_columns; i++) {
        t->right[i] = titles[i][0] == '>';
        plain[i] = titles[i] + (t->right[i] ? 1 : 0);
    }
    ebb_status st = add_row(t, plain);
    if (st == EBB_OK)
        *out = t;
    else
        ebb_table_free(t);
    return st;
}

void ebb_table_free(ebb_table *table)
{
    if (!table) return;
    ebb__free(table->cells);
    ebb__free(table);
}

ebb_status ebb_table_row(ebb_table *table, const char *const cells[])
{
    return add_row(table, cells);
}

static void print_row(const ebb_table *t, size_t row, const int widths[], FILE *file)
{
    for (int i = 0; i < t->n_columns; i++) {
        const char *text = t->cells[row * (size_t)t->n_columns + (size_t)i];
        const char *gap = i == 0 ? "" : "  ";
        bool last = i == t->n_columns - 1;
        if (t->right[i])
            fprintf(file, "%s%*s", gap, widths[i], text);
        else if (last)
            fprintf(file, "%s%s", gap, text);
        else
            fprintf(file, "%s%-*s", gap, widths[i], text);
    }
    fputc('\n', file);
}

void ebb_table_print(const ebb_table *table, void *file)
{
    int widths[EBB_TABLE_COLUMNS] = { 0 }, total = 0;
    for (size_t r = 0; r < table->n_rows; r++) {
        for (int i = 0; i < table->n_columns; i++) {
            int n = (int)strlen(table->cells[r * (size_t)table->n_columns + (size_t)i]);
            if (n > widths[i]) widths[i] = n;
        }
    }
    for (int i = 0; i < table->n_columns; i++) total += widths[i] + (i ? 2 : 0);
    for (size_t r = 0; r < table->n_rows; r++) {
        print_row(table, r, widths, file);
        for (int i = 0; r == 0 && i <= total; i++) fputc(i < total ? '-' : '\n', file);
    }
}
