/* ebb/report.h: results for people: tables, the memory report, the progress line, and what this
 * build is made of.  All text goes to a FILE * that the caller gives; nothing else is printed. */
#ifndef EBB_REPORT_H
#define EBB_REPORT_H

#include <ebb/leak.h>
#include <ebb/train.h>

EBB_BEGIN_DECLS

/* ---- tables ------------------------------------------------------------------------------ */

enum { EBB_TABLE_COLUMNS = 16, EBB_TABLE_CELL_BYTES = 64 };

typedef struct ebb_table ebb_table;
/* A table with these column titles.  A title that begins with '>' is of a right-aligned column.
 * Owner: *out is the caller's.  Errors: EINVAL (n_columns outside 1..EBB_TABLE_COLUMNS), ENOMEM. */
EBB_API EBB_NODISCARD ebb_status ebb_table_new(ebb_table **out, int n_columns,
                                               const char *const titles[]);
EBB_API void ebb_table_free(ebb_table *table); /* NULL is a no-op */
/* Adds a row; cells (as many as columns) are copied, longer ones cut.  Errors: ENOMEM. */
EBB_API EBB_NODISCARD ebb_status ebb_table_row(ebb_table *table, const char *const cells[]);
/* Prints titles, a rule and the rows, columns as wide as their widest cell. */
EBB_API void ebb_table_print(const ebb_table *table, void *file);

/* ---- memory and time --------------------------------------------------------------------- */

/* Memory by category at the instant of the peak, largest first, and the totals. */
EBB_API void ebb_memory_print(const ebb_memory_stats *stats, void *file);
/* All statistics of the pool as a table: metrics by row (allocated, active, requested, reserved and
 * inactive split bytes; blocks and segments; each of all, of the large and of the small pool), columns
 * now, peak, sum of allocated, sum of freed; then the counts of retries and failures. */
EBB_API void ebb_memory_summary_print(const ebb_context *ctx, void *file);
/* A file of `bytes`: it appears under its name when it is complete (a device or a pipe gets the bytes as they
 * come).  A symbolic link stays, a replaced file's mode too.  Errors: EIO, ENOMEM. */
EBB_API EBB_NODISCARD ebb_status ebb_file_write(const char *path, const void *data, size_t bytes);
/* What steps left behind and who holds it, or that they left nothing, or that they were too few to tell. */
EBB_API void ebb_leak_print(const ebb_leak_report *report, void *file);
/* "1.2 s", "3 min 20 s", "2 h 5 min"; returns buf. */
EBB_API char *ebb_time_format(double seconds, char *buf, size_t buf_bytes);
/* "950", "12.3 k", "4.56 M"; returns buf. */
EBB_API char *ebb_count_format(double count, char *buf, size_t buf_bytes);

/* A copy that is UTF-8 without zeros: what is not becomes U+FFFD, byte by byte.  buf has room for
 * 3 n + 1 bytes; returns buf. */
EBB_API char *ebb_utf8_text(char *buf, const void *bytes, size_t n);

/* ---- the progress line ------------------------------------------------------------------- */

typedef struct ebb_progress_line {
    void *file;     /* FILE *; NULL: nothing is shown */
    double last_ms; /* when it was painted last */
    int shown;      /* characters on the line now */
} ebb_progress_line;

/* Paints step, loss, rate, memory now and peak, and time left over the line before; at most ten times
 * a second. */
EBB_API void ebb_progress_show(ebb_progress_line *line, const ebb_progress *progress);
/* Removes the line, so that other text can be printed. */
EBB_API void ebb_progress_clear(ebb_progress_line *line);

/* ---- words and builds -------------------------------------------------------------------- */

/* The nearest of `words` by edit distance, or NULL where none is near. */
EBB_API const char *ebb_nearest_word(const char *word, const char *const words[], int n);

typedef struct ebb_build_info {
    const char *version, *compiler, *blas; /* "0.1.0", "gcc 12.2.0", "OpenBLAS 0.3.21 (...)" */
    int cores;                             /* of this process's affinity mask */
    int checks;                            /* the build's default level */
    int n_ops;                             /* built in */
} ebb_build_info;
EBB_API ebb_build_info ebb_build_info_get(void);

EBB_END_DECLS
#endif
