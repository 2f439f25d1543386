/* A stand-in for libnvidia-ml.so.1, as far as nvidia-ml-py and `loadpath check` ask it. */
#include "scenario.h"

typedef int ret;
typedef void *dev;
enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

static int idx(dev d) { return (int)(long)d & 0xff; }
static int is_mig(dev d) { return (long)d & 0x1000; }
/* What every question to this GPU answers first: 15 lost, 16 reset required, 999 unknown, 4 no permission. */
static ret state(dev d) { return (ret)of_gpu("answer", idx(d) - 1, OK); }
#define ASK(d) do { ret answer = state(d); if (answer) return answer; } while (0)
#define GPU(d) (idx(d) - 1)

ret nvmlInitWithFlags(unsigned flags) { (void)flags; misbehave("nvmlInit"); return (ret)number("init", OK); }
ret nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
ret nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(ret r) {
    return r == 9 ? "Driver Not Loaded" : r == 18 ? "Driver/library version mismatch" : r == 15 ? "GPU is lost"
         : r == 4 ? "Insufficient Permissions" : r == 999 ? "Unknown Error" : "Error";
}
ret nvmlSystemGetDriverVersion(char *b, unsigned n) { text("driver", "580.95.05", b, n); return OK; }
ret nvmlSystemGetNVMLVersion(char *b, unsigned n) { text("nvml", "13.580.95.05", b, n); return OK; }
ret nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = (int)number("cuda", 13000); return OK; }
ret nvmlSystemGetProcessName(unsigned pid, char *b, unsigned n) { (void)pid; text("process-name", "/usr/bin/python3", b, n); return OK; }
ret nvmlDeviceGetCount_v2(unsigned *n) { misbehave("nvmlDeviceGetCount"); *n = (unsigned)number("count", 1); return OK; }
ret nvmlDeviceGetHandleByIndex_v2(unsigned i, dev *d) {
    *d = (dev)(long)(i + 1);
    return (ret)of_gpu("handle", (int)i, OK);
}
ret nvmlDeviceGetName(dev d, char *b, unsigned n) {
    if (is_mig(d)) { snprintf(b, n, "NVIDIA A100-SXM4-80GB MIG 1g.10gb"); return OK; }
    ASK(d); text("name", "NVIDIA H100 80GB HBM3", b, n); return OK;
}
ret nvmlDeviceGetUUID(dev d, char *b, unsigned n) {
    snprintf(b, n, "%s-00000000-0000-0000-0000-%012d", is_mig(d) ? "MIG" : "GPU", GPU(d)); return OK;
}
ret nvmlDeviceGetMinorNumber(dev d, unsigned *m) { *m = (unsigned)GPU(d); return OK; }
ret nvmlDeviceGetVbiosVersion(dev d, char *b, unsigned n) { ASK(d); snprintf(b, n, "96.00.89.00.01"); return OK; }
ret nvmlDeviceGetCudaComputeCapability(dev d, int *a, int *b) { ASK(d); *a = (int)number("capability", 90) / 10; *b = (int)number("capability", 90) % 10; return OK; }

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci;
ret nvmlDeviceGetPciInfo_v3(dev d, pci *p) {
    memset(p, 0, sizeof *p);
    p->bus = 1 + (unsigned)GPU(d);
    p->id = (unsigned)number("device-id", 0x233010DE);
    snprintf(p->bus_id, sizeof p->bus_id, "00000000:%02X:00.0", p->bus);
    return OK;
}

typedef struct { unsigned long long total, free, used; } memory1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory2;
ret nvmlDeviceGetMemoryInfo_v2(dev d, memory2 *m) {
    ASK(d);
    m->total = (unsigned long long)number("memory", 81559) << 20;
    m->reserved = 550ULL << 20;
    m->used = (unsigned long long)of_gpu("used", GPU(d), 4) << 20;
    m->free = m->total - m->used - m->reserved;
    return OK;
}
ret nvmlDeviceGetMemoryInfo(dev d, memory1 *m) {
    ASK(d);
    m->total = (is_mig(d) ? 9728ULL : (unsigned long long)number("memory", 81559)) << 20;
    m->used = 13ULL << 20;
    m->free = m->total - m->used;
    return OK;
}
typedef struct { unsigned gpu, memory; } rates;
ret nvmlDeviceGetUtilizationRates(dev d, rates *u) { ASK(d); if (number("mig", 0)) return NOT_SUPPORTED; u->gpu = (unsigned)of_gpu("busy", GPU(d), 0); u->memory = 0; return OK; }
ret nvmlDeviceGetTemperature(dev d, int sensor, unsigned *t) { (void)sensor; ASK(d); *t = (unsigned)of_gpu("temperature", GPU(d), 33); return OK; }
ret nvmlDeviceGetPowerUsage(dev d, unsigned *p) { ASK(d); *p = 1000 * (unsigned)of_gpu("power", GPU(d), 70); return OK; }
ret nvmlDeviceGetEnforcedPowerLimit(dev d, unsigned *p) { ASK(d); *p = 700000; return OK; }
ret nvmlDeviceGetPowerManagementDefaultLimit(dev d, unsigned *p) { ASK(d); *p = 700000; return OK; }
ret nvmlDeviceGetPerformanceState(dev d, unsigned *p) { ASK(d); *p = 0; return OK; }
ret nvmlDeviceGetPersistenceMode(dev d, unsigned *m) { ASK(d); *m = 1; return OK; }
ret nvmlDeviceGetComputeMode(dev d, unsigned *m) { ASK(d); *m = (unsigned)number("compute-mode", 0); return OK; }
ret nvmlDeviceGetMigMode(dev d, unsigned *c, unsigned *p) { ASK(d); *c = *p = (unsigned)number("mig", 0); return OK; }
ret nvmlDeviceGetVirtualizationMode(dev d, unsigned long long *m) { ASK(d); *m = 0; return OK; }

ret nvmlDeviceGetMaxMigDeviceCount(dev d, unsigned *n) { (void)d; *n = 7; return OK; }
ret nvmlDeviceGetMigDeviceHandleByIndex(dev d, unsigned i, dev *m) {
    if ((long)i >= number("mig-instances", 0)) return NOT_FOUND;
    *m = (dev)((long)d | 0x1000 | (long)i << 16);
    return OK;
}
ret nvmlDeviceGetGpuInstanceId(dev d, unsigned *i) { *i = (unsigned)((long)d >> 16) + 7; return OK; }
ret nvmlDeviceGetComputeInstanceId(dev d, unsigned *i) { (void)d; *i = 0; return OK; }

ret nvmlDeviceGetCurrentClocksEventReasons(dev d, unsigned long long *r) { ASK(d); *r = (unsigned long long)of_gpu("reasons", GPU(d), 1); return OK; }
ret nvmlDeviceGetClockInfo(dev d, int type, unsigned *c) { ASK(d); *c = type == 1 ? (unsigned)of_gpu("sm-clock", GPU(d), 1980) : 2619; return OK; }
ret nvmlDeviceGetMaxClockInfo(dev d, int type, unsigned *c) { ASK(d); *c = type == 1 ? 1980 : 2619; return OK; }

ret nvmlDeviceGetRemappedRows(dev d, unsigned *cor, unsigned *unc, unsigned *pending, unsigned *failed) {
    ASK(d);
    *cor = 0; *unc = (unsigned)of_gpu("remap-uncorrectable", GPU(d), 0);
    *pending = (unsigned)of_gpu("remap-pending", GPU(d), 0); *failed = (unsigned)of_gpu("remap-failed", GPU(d), 0);
    return OK;
}
typedef struct { unsigned max, high, partial, low, none; } histogram;
ret nvmlDeviceGetRowRemapperHistogram(dev d, histogram *h) { ASK(d); memset(h, 0, sizeof *h); h->max = 640; return OK; }
ret nvmlDeviceGetEccMode(dev d, unsigned *c, unsigned *p) { ASK(d); *c = *p = 1; return OK; }
ret nvmlDeviceGetTotalEccErrors(dev d, int kind, int counter, unsigned long long *n) {
    ASK(d); (void)counter; *n = kind == 1 ? (unsigned long long)of_gpu("uncorrected", GPU(d), 0) : 0; return OK;
}
ret nvmlDeviceGetCurrPcieLinkGeneration(dev d, unsigned *g) { ASK(d); *g = 5; return OK; }
ret nvmlDeviceGetMaxPcieLinkGeneration(dev d, unsigned *g) { ASK(d); *g = 5; return OK; }
ret nvmlDeviceGetCurrPcieLinkWidth(dev d, unsigned *w) { ASK(d); *w = (unsigned)of_gpu("width", GPU(d), 16); return OK; }
ret nvmlDeviceGetMaxPcieLinkWidth(dev d, unsigned *w) { ASK(d); *w = 16; return OK; }

typedef struct { unsigned field, scope; long long stamp, latency; unsigned type, answer; unsigned long long value; } field;
enum { RECOVERY_ACTION = 230, LINK_SPEED = 164 };
ret nvmlDeviceGetFieldValues(dev d, int count, field *values) {
    ASK(d);
    for (int i = 0; i < count; i++) {
        long value = values[i].field == RECOVERY_ACTION ? of_gpu("recovery", GPU(d), 0) : -1;
        if (values[i].field == LINK_SPEED) value = number("nvlink-speed", 26562);
        values[i].answer = value < 0 ? NOT_SUPPORTED : OK;
        values[i].type = 1;
        values[i].value = value < 0 ? 0 : (unsigned long long)value;
    }
    return OK;
}

typedef struct {
    unsigned version; unsigned char cluster[16]; int status; unsigned clique, state, health; unsigned char summary;
} fabric;
ret nvmlDeviceGetGpuFabricInfoV(dev d, fabric *f) {
    ASK(d);
    long now = number("fabric", -1);
    if (now < 0) return NOT_SUPPORTED;
    f->state = (unsigned)now; f->status = 0;
    if (f->version >> 24 >= 3) f->summary = (unsigned char)number("fabric-health", 1);
    return OK;
}
typedef struct { unsigned version; unsigned long long counts[11]; unsigned exceeded; } sram;
ret nvmlDeviceGetSramEccErrorStatus(dev d, sram *s) { ASK(d); s->exceeded = (unsigned)of_gpu("sram-exceeded", GPU(d), 0); return OK; }
ret nvmlDeviceGetRepairStatus(dev d, unsigned *s) { ASK(d); s[1] = 0; s[2] = (unsigned)of_gpu("repair", GPU(d), 0); return OK; }
ret nvmlDeviceGetGspFirmwareMode(dev d, unsigned *on, unsigned *usual) { ASK(d); *on = *usual = 1; return OK; }
ret nvmlDeviceGetNvLinkState(dev d, unsigned link, unsigned *up) {
    ASK(d);
    if ((long)link >= number("nvlinks", 0)) return 2;
    *up = (long)link != number("nvlink-down", -1) && !number("nvlinks-inactive", 0);
    return OK;
}

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;
ret nvmlDeviceGetComputeRunningProcesses_v3(dev d, unsigned *n, process *list) {
    ASK(d);
    long pid = of_gpu("process", GPU(d), 0);
    unsigned room = *n;
    *n = pid ? 1 : 0;
    if (!pid) return OK;
    if (room < 1 || !list) return 7;
    list[0] = (process){(unsigned)pid, (unsigned long long)of_gpu("process-used", GPU(d), 1024) << 20, ~0u, ~0u};
    return OK;
}
ret nvmlDeviceGetGraphicsRunningProcesses_v3(dev d, unsigned *n, process *list) { (void)list; ASK(d); *n = 0; return OK; }
ret nvmlDeviceGetP2PStatus(dev a, dev b, int index, int *status) { (void)a; (void)b; (void)index; *status = (int)number("p2p", 0); return OK; }
