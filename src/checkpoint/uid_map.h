/* checkpoint/uid_map.h: which value of a segment a tensor is. */
#ifndef EBB_CHECKPOINT_UID_MAP_H
#define EBB_CHECKPOINT_UID_MAP_H

#include <ebb/status.h>

typedef struct ebb__uid_map { uint64_t *keys; int32_t *values; size_t cap, n; } ebb__uid_map; /* key 0: empty */

EBB_NODISCARD ebb_status ebb__uid_map_reserve(ebb__uid_map *map, size_t more);
void ebb__uid_map_put(ebb__uid_map *map, uint64_t key, int32_t value); /* room reserved; key is new */
bool ebb__uid_map_get(const ebb__uid_map *map, uint64_t key, int32_t *value);
void ebb__uid_map_deinit(ebb__uid_map *map);

#endif
