/* uid_map.c: tensor id -> value, open addressing; room is made before, so that putting never fails. */
#include "checkpoint/uid_map.h"

#include "core/mem.h"

static size_t start(uint64_t key, size_t cap) { return (size_t)(key * 0x9E3779B97F4A7C15u >> 20) & (cap - 1); }

static void put(uint64_t *keys, int32_t *values, size_t cap, uint64_t key, int32_t value)
{
    size_t at = start(key, cap);
    while (keys[at]) at = (at + 1) & (cap - 1);
    keys[at] = key;
    values[at] = value;
}

ebb_status ebb__uid_map_reserve(ebb__uid_map *map, size_t more)
{
    size_t cap = map->cap ? map->cap : 64;
    while ((map->n + more) * 2 > cap) cap *= 2;
    if (cap == map->cap) return EBB_OK;
    uint64_t *keys = ebb__calloc(cap, sizeof keys[0]);
    int32_t *values = keys ? ebb__calloc(cap, sizeof values[0]) : NULL;
    if (!values) {
        ebb__free(keys);
        return EBB_ENOMEM;
    }
    for (size_t i = 0; i < map->cap; i++)
        if (map->keys[i]) put(keys, values, cap, map->keys[i], map->values[i]);
    ebb__free(map->keys);
    ebb__free(map->values);
    map->keys = keys;
    map->values = values;
    map->cap = cap;
    return EBB_OK;
}

void ebb__uid_map_put(ebb__uid_map *map, uint64_t key, int32_t value)
{
    put(map->keys, map->values, map->cap, key, value);
    map->n++;
}

bool ebb__uid_map_get(const ebb__uid_map *map, uint64_t key, int32_t *value)
{
    if (!map->cap) return false;
    for (size_t at = start(key, map->cap); map->keys[at]; at = (at + 1) & (map->cap - 1))
        if (map->keys[at] == key) {
            *value = map->values[at];
            return true;
        }
    return false;
}

void ebb__uid_map_deinit(ebb__uid_map *map)
{
    ebb__free(map->keys);
    ebb__free(map->values);
    *map = (ebb__uid_map){ 0 };
}
