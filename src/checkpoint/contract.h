/* checkpoint/contract.h: what a segment promised, and what became of it.
 * A contract is open from the segment's beginning until it is recomputed first or goes.  Every storage
 * that it promised holds it, and tells it when it is freed while the contract is open. */
#ifndef EBB_CHECKPOINT_CONTRACT_H
#define EBB_CHECKPOINT_CONTRACT_H

#include <ebb/checkpoint.h>
#include "tensor/tensor.h"

struct ebb__segment;

typedef struct ebb__segment_record { /* the context's, one per name */
    struct ebb__segment_record *next;
    char name[48];
    ebb_segment_report report;
} ebb__segment_record;

typedef struct ebb__contract {
    atomic_int refs;            /* the segment, and storages that it promised */
    ebb__segment_record *record;
    bool ended;
    size_t promised_bytes, freed_bytes, input_bytes;
    uint64_t n_nodes, n_kept;   /* calls with a node; calls whose outputs the policy keeps or packs */
} ebb__contract;

EBB_NODISCARD ebb_status ebb__contract_new(ebb__contract **out, ebb_context *ctx, const char *name);
void ebb__contract_release(ebb__contract *contract); /* NULL is fine */
/* `bytes` are not kept thanks to the segment; storage NULL: forward did not even make them. */
void ebb__contract_promise(ebb__contract *contract, ebb_storage *storage, size_t bytes);
void ebb__contract_storage_gone(ebb_storage *storage);
void ebb__contract_end(ebb__contract *contract); /* once counts */
void ebb__contract_recomputed(ebb__contract *contract, double ms);
void ebb__contract_records_free(ebb_context *ctx);

#endif
