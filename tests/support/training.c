#include "support/training.h"

void check_same_memory(const ebb_memory_stats *said, const ebb_memory_stats *used, const char *what)
{
    cr_assert(said->peak_allocated_bytes == used->peak_allocated_bytes, "allocated %zu, used %zu: %s",
              said->peak_allocated_bytes, used->peak_allocated_bytes, what);
    cr_assert(said->peak_reserved_bytes == used->peak_reserved_bytes, "reserved %zu, used %zu: %s",
              said->peak_reserved_bytes, used->peak_reserved_bytes, what);
    cr_assert(said->peak_requested_bytes == used->peak_requested_bytes, "requested %zu, used %zu: %s",
              said->peak_requested_bytes, used->peak_requested_bytes, what);
    size_t sum = 0;
    for (int c = 0; c < EBB_N_CATEGORIES; c++) {
        sum += used->by_category_at_peak[c];
        cr_assert(said->by_category_at_peak[c] == used->by_category_at_peak[c], "%s %zu, used %zu: %s",
                  ebb_category_name((ebb_category)c), said->by_category_at_peak[c],
                  used->by_category_at_peak[c], what);
    }
    cr_assert(sum == used->peak_allocated_bytes, "categories sum to %zu of %zu: %s", sum,
              used->peak_allocated_bytes, what);
}
