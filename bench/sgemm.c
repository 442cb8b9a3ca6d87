/* sgemm.c: the machine's own f32 product rate, without ebb: the best of OpenBLAS's threads and of one
 * single-threaded call per core, over shapes of a transformer step.  Prints one JSON object.
 *   sgemm THREADS */
#include <cblas.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

extern void openblas_set_num_threads(int n);

typedef struct product { int m, n, k; const float *a, *b; float *c; } product;

enum { MAX_THREADS = 64, ROUNDS = 7 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *run(void *arg)
{
    const product *p = arg;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, p->m, p->n, p->k, 1, p->a, p->k, p->b, p->k, 0, p->c, p->n);
    return NULL;
}

static void by_library(const product *p, int threads)
{
    openblas_set_num_threads(threads);
    run((void *)p);
}

static void by_rows(const product *p, int threads)
{
    pthread_t workers[MAX_THREADS];
    product part[MAX_THREADS];
    openblas_set_num_threads(1);
    for (int t = 0; t < threads; t++) {
        int begin = (int)((long)p->m * t / threads), end = (int)((long)p->m * (t + 1) / threads);
        part[t] = (product){ end - begin, p->n, p->k, p->a + (size_t)begin * (size_t)p->k, p->b,
                             p->c + (size_t)begin * (size_t)p->n };
        if (t && pthread_create(&workers[t], NULL, run, &part[t])) exit(1);
    }
    run(&part[0]);
    for (int t = 1; t < threads; t++) pthread_join(workers[t], NULL);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Median rate in GFLOP/s. */
static double rate(const product *p, int threads, void (*how)(const product *, int))
{
    double seconds[ROUNDS];
    how(p, threads);
    for (int r = 0; r < ROUNDS; r++) {
        double start = now();
        how(p, threads);
        seconds[r] = now() - start;
    }
    qsort(seconds, ROUNDS, sizeof seconds[0], by_value);
    return 2.0 * p->m * p->n * p->k / seconds[ROUNDS / 2] * 1e-9;
}

int main(int argc, char **argv)
{
    static const int shapes[][3] = {
        { 2048, 1536, 384 }, { 2048, 384, 1536 }, { 2048, 1152, 384 }, { 2048, 2048, 1024 }
    };
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    if (threads < 1 || threads > MAX_THREADS) return 2;
    double best = 0;
    printf("{\"bench\": \"sgemm\", \"threads\": %d, \"shapes\": [", threads);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        product p = { shapes[s][0], shapes[s][1], shapes[s][2], NULL, NULL, NULL };
        float *a = malloc((size_t)p.m * (size_t)p.k * sizeof *a), *b = malloc((size_t)p.n * (size_t)p.k * sizeof *b);
        p.c = malloc((size_t)p.m * (size_t)p.n * sizeof *p.c);
        if (!a || !b || !p.c) return 1;
        for (size_t i = 0; i < (size_t)p.m * (size_t)p.k; i++) a[i] = (float)(i % 7) * 0.1f;
        for (size_t i = 0; i < (size_t)p.n * (size_t)p.k; i++) b[i] = (float)(i % 5) * 0.1f;
        p.a = a;
        p.b = b;
        double library = rate(&p, threads, by_library), rows = rate(&p, threads, by_rows);
        double faster = library > rows ? library : rows;
        if (faster > best) best = faster;
        printf("%s{\"m\": %d, \"n\": %d, \"k\": %d, \"library_gflops\": %.1f, \"rows_gflops\": %.1f}", s ? ", " : "",
               p.m, p.n, p.k, library, rows);
        free(a);
        free(b);
        free(p.c);
    }
    printf("], \"gflops\": %.1f}\n", best);
    return 0;
}
