/* alloc/live_map.c: open addressing; a block's name is kept when the block is gone, since most names
 * come again. */
#include "alloc/live_map.h"

#include "core/mem.h"

static ebb__live_entry *find(const ebb__live_map *map, uint64_t segment, size_t offset)
{
    uint64_t hash = (segment * 0x9E3779B97F4A7C15u) ^ (offset / 512 * 0xC2B2AE3D27D4EB4Fu);
    size_t at = (size_t)(hash ^ hash >> 32) & (map->capacity - 1);
    while (map->entries[at].segment &&
           (map->entries[at].segment != segment || map->entries[at].offset != offset))
        at = (at + 1) & (map->capacity - 1);
    return &map->entries[at];
}

static ebb_status grow(ebb__live_map *map)
{
    ebb__live_map larger = { .capacity = map->capacity ? 2 * map->capacity : 256,
                             .n_used = map->n_used };
    larger.entries = ebb__calloc(larger.capacity, sizeof *larger.entries);
    if (!larger.entries) return EBB_ENOMEM;
    for (size_t i = 0; i < map->capacity; i++) {
        const ebb__live_entry *e = &map->entries[i];
        if (e->segment) *find(&larger, e->segment, e->offset) = *e;
    }
    ebb__free(map->entries);
    *map = larger;
    return EBB_OK;
}

ebb_status ebb__live_map_set(ebb__live_map *map, uint64_t segment, size_t offset, size_t value)
{
    if (map->n_used >= map->capacity / 2) {
        ebb_status status = grow(map);
        if (status != EBB_OK) return status;
    }
    ebb__live_entry *e = find(map, segment, offset);
    map->n_used += e->segment == 0;
    *e = (ebb__live_entry){ segment, offset, value };
    return EBB_OK;
}

size_t ebb__live_map_get(const ebb__live_map *map, uint64_t segment, size_t offset)
{
    if (map->capacity == 0) return SIZE_MAX;
    const ebb__live_entry *e = find(map, segment, offset);
    return e->segment ? e->value : SIZE_MAX;
}

size_t ebb__live_map_take(ebb__live_map *map, uint64_t segment, size_t offset)
{
    if (map->capacity == 0) return SIZE_MAX;
    ebb__live_entry *e = find(map, segment, offset);
    size_t value = e->segment ? e->value : SIZE_MAX;
    if (e->segment) e->value = SIZE_MAX;
    return value;
}

void ebb__live_map_deinit(ebb__live_map *map)
{
    ebb__free(map->entries);
    *map = (ebb__live_map){ 0 };
}
