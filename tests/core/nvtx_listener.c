/* Prints each range as it begins and ends. NVTX loads it as it would load Nsight Systems. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void (*function)(void);

struct callbacks {
    size_t size;
    int (*table_of)(int module, function ***table, unsigned *size);
};

struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message;
};

enum { CALLBACKS = 1, CORE = 1, DOMAINS = 5 };
enum { RANGE_START_A = 5, RANGE_END = 7 }; /* of CORE */
enum { DOMAIN_RANGE_START = 2, DOMAIN_RANGE_END = 3, REGISTER_STRING = 10 };

static uint64_t ranges;

static void *register_string(void *domain, const char *text) { return strdup(text); }

static uint64_t start(const char *name) {
    printf("begin %llu %s\n", (unsigned long long)++ranges, name);
    fflush(stdout);
    return ranges;
}

static void end(uint64_t range) {
    printf("end %llu\n", (unsigned long long)range);
    fflush(stdout);
}

static uint64_t domain_start(void *domain, const struct attributes *range) {
    return start(range->message);
}

static void domain_end(void *domain, uint64_t range) { end(range); }

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    const struct callbacks *callbacks = export_table(CALLBACKS);
    function **table;
    unsigned size;
    if (callbacks == NULL || !callbacks->table_of(DOMAINS, &table, &size)) return 0;
    *table[DOMAIN_RANGE_START] = (function)domain_start;
    *table[DOMAIN_RANGE_END] = (function)domain_end;
    *table[REGISTER_STRING] = (function)register_string;
    if (!callbacks->table_of(CORE, &table, &size)) return 0;
    *table[RANGE_START_A] = (function)start;
    *table[RANGE_END] = (function)end;
    return 1;
}
