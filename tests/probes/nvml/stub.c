/* As much of libnvidia-ml.so.1 as the GPU probe asks for, over devices that a test describes. */

#include <stdlib.h>
#include <string.h>

typedef struct {
    char name[96], uuid[96];
    unsigned mig_mode, gpm, pid;
    unsigned kernel_busy, power_mw, sm_mhz, receive_kb, transmit_kb;
    unsigned long long memory_used, reasons;
    double counted[512]; /* GPM's counters, by the number of the metric */
} device;

typedef struct { device *of; double counted[512]; } sample;
typedef struct { char function[64]; int device, code; } failure;
typedef struct { char function[64]; int device; } call;

device devices[16] = {{.name = "Stub", .uuid = "GPU-0", .kernel_busy = 70}};
failure failures[64];
call calls[4096];
int device_count = 1, failure_count, call_count, starts, live_samples;

/* Notes the call, and tells whether it is to fail. */
static int entered(const char *function, int number) {
    if (call_count < 4096) {
        strcpy(calls[call_count].function, function);
        calls[call_count++].device = number;
    }
    for (int i = 0; i < failure_count; i++) {
        int same = !strcmp(failures[i].function, function) || !strcmp(failures[i].function, "*");
        if (same && (failures[i].device == number || failures[i].device == -1))
            return failures[i].code;
    }
    return 0;
}

#define ENTER(number) do { int code = entered(__func__, number); if (code) return code; } while (0)
#define OF(d) ((int)((d) - devices))

int nvmlInitWithFlags(unsigned flags) { ENTER(-2); starts++; return (int)flags; }
int nvmlShutdown(void) { ENTER(-2); starts--; return 0; }
const char *nvmlErrorString(int code) { return code == 21 ? "No data" : "?"; }

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    ENTER(-2);
    strncpy(text, "550.54.15", size);
    return 0;
}

int nvmlSystemGetCudaDriverVersion(int *version) { ENTER(-2); *version = 12040; return 0; }

int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(-2); *count = device_count; return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **found) {
    ENTER((int)index);
    *found = &devices[index];
    return 0;
}

int nvmlDeviceGetName(device *d, char *text, unsigned size) {
    ENTER(OF(d));
    strncpy(text, d->name, size);
    return 0;
}

int nvmlDeviceGetUUID(device *d, char *text, unsigned size) {
    ENTER(OF(d));
    strncpy(text, d->uuid, size);
    return 0;
}

int nvmlDeviceGetMigMode(device *d, unsigned *current, unsigned *pending) {
    ENTER(OF(d));
    *current = *pending = d->mig_mode;
    return 0;
}

typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } process;

int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *count, process *found) {
    ENTER(OF(d));
    unsigned room = *count;
    *count = d->pid != 0;
    if (room < *count) return 7;
    if (*count) found->pid = d->pid;
    return 0;
}

typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;

int nvmlDeviceGetUtilizationRates(device *d, utilization *found) {
    ENTER(OF(d));
    found->gpu = d->kernel_busy;
    return 0;
}



int nvmlDeviceGetMemoryInfo_v2(device *d, memory_v2 *found) {
    ENTER(OF(d));
    found->used = d->memory_used;
    return 0;
}

int nvmlDeviceGetClockInfo(device *d, int type, unsigned *found) {
    ENTER(OF(d));
    *found = type == 1 ? d->sm_mhz : 0;
    return 0;
}

int nvmlDeviceGetPowerUsage(device *d, unsigned *found) {
    ENTER(OF(d));
    *found = d->power_mw;
    return 0;
}

int nvmlDeviceGetCurrentClocksEventReasons(device *d, unsigned long long *found) {
    ENTER(OF(d));
    *found = d->reasons;
    return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, unsigned long long *found) {
    ENTER(OF(d));
    *found = d->reasons;
    return 0;
}

int nvmlDeviceGetPcieThroughput(device *d, int counter, unsigned *found) {
    ENTER(OF(d));
    *found = counter == 1 ? d->receive_kb : d->transmit_kb;
    return 0;
}

typedef struct { const char *words[3]; } metric_info;
typedef struct { unsigned number; int code; double value; metric_info info; } metric;
typedef struct { unsigned version, count; sample *first, *second; metric metrics[]; } metrics;
typedef struct { unsigned version, supported; } support;

int nvmlGpmQueryDeviceSupport(device *d, support *found) {
    ENTER(OF(d));
    found->supported = d->gpm;
    return 0;
}

int nvmlGpmSampleAlloc(sample **found) {
    ENTER(-2);
    *found = calloc(1, sizeof(sample));
    live_samples++;
    return 0;
}

int nvmlGpmSampleFree(sample *s) {
    free(s);
    live_samples--;
    ENTER(-2);
    return 0;
}

int nvmlGpmSampleGet(device *d, sample *s) {
    ENTER(OF(d));
    s->of = d;
    memcpy(s->counted, d->counted, sizeof s->counted);
    return 0;
}

/* What was counted between the two samples; a metric that was never counted is not supported. */
int nvmlGpmMetricsGet(metrics *asked) {
    ENTER(OF(asked->second->of));
    if (asked->version != 1 || asked->first->of != asked->second->of) return 2;
    for (unsigned i = 0; i < asked->count; i++) {
        metric *m = &asked->metrics[i];
        double before = asked->first->counted[m->number], now = asked->second->counted[m->number];
        m->code = now == 0 ? 3 : 0;
        m->value = now - before;
    }
    return 0;
}
