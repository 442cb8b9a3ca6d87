/* property/drawn_config.h: configs of small models on synthetic data, drawn from a seed. */
#ifndef EBB_TESTS_DRAWN_CONFIG_H
#define EBB_TESTS_DRAWN_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

typedef struct drawn_config {
    char json[2048];
    int threads;
    bool save;      /* the run is to have a folder */
} drawn_config;

void drawn_config_make(drawn_config *out, uint64_t seed);

#endif
