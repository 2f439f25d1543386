/* A stand-in for libcuda.so.1: the driver API's first calls. */
#include "scenario.h"

int cuDriverGetVersion(int *v) { *v = (int)number("cuda", 13000); return 0; }
int cuInit(unsigned flags) { (void)flags; misbehave("cuInit"); return (int)number("cuInit", 0); }
int cuDeviceGetCount(int *n) { *n = (int)number("cuda-count", number("count", 1)); return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *b, int n, int device) { (void)device; text("name", "NVIDIA H100 80GB HBM3", b, (unsigned)n); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    long capability = number("capability", 90);
    *value = (int)(attribute == 75 ? capability / 10 : capability % 10);
    return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = (size_t)number("memory", 81559) << 20; return 0; }
