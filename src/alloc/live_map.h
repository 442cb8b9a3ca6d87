/* alloc/live_map.h: which event made the block that lives at (segment, offset), while a trace is read. */
#ifndef EBB_ALLOC_LIVE_MAP_H
#define EBB_ALLOC_LIVE_MAP_H

#include <ebb/status.h>

typedef struct ebb__live_entry {
    uint64_t segment; /* 0: never used */
    size_t offset;
    size_t value; /* SIZE_MAX: gone */
} ebb__live_entry;

/* Zero is an empty map. */
typedef struct ebb__live_map {
    ebb__live_entry *entries;
    size_t capacity, n_used; /* capacity: a power of 2 */
} ebb__live_map;

EBB_NODISCARD ebb_status ebb__live_map_set(ebb__live_map *map, uint64_t segment, size_t offset,
                                           size_t value);
/* Takes the value out; SIZE_MAX: there was none. */
size_t ebb__live_map_take(ebb__live_map *map, uint64_t segment, size_t offset);
size_t ebb__live_map_get(const ebb__live_map *map, uint64_t segment, size_t offset);
void ebb__live_map_deinit(ebb__live_map *map);

#endif
