/* Blocks per SM as NVIDIA's own header computes them. Each line of standard input: compute capability (two numbers), threads,
 * shared bytes, most shared bytes of a block and reserved bytes of the SM, then the kernel's threads, registers, static and
 * dynamic shared bytes. Prints the blocks that fit, -1 where the header refuses the input. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cuda_occupancy.h"

int main(void) {
    int major, minor, sm_threads, threads, registers;
    long sm_shared, block_shared, reserved, fixed, dynamic;
    while (scanf("%d %d %d %ld %ld %ld %d %d %ld %ld", &major, &minor, &sm_threads, &sm_shared, &block_shared, &reserved,
                 &threads, &registers, &fixed, &dynamic) == 10) {
        cudaOccDeviceProp device;
        cudaOccFuncAttributes kernel;
        cudaOccDeviceState state;
        cudaOccResult result;
        memset(&device, 0, sizeof device);
        memset(&kernel, 0, sizeof kernel);
        memset(&state, 0, sizeof state);
        device.computeMajor = major;
        device.computeMinor = minor;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = sm_threads;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.numSms = 1;
        device.sharedMemPerBlock = 48 * 1024;
        device.sharedMemPerMultiprocessor = sm_shared;
        device.sharedMemPerBlockOptin = block_shared;
        device.reservedSharedMemPerBlock = reserved;
        kernel.maxThreadsPerBlock = 1024;
        kernel.numRegs = registers;
        kernel.sharedSizeBytes = fixed;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = block_shared - fixed;
        state.carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT;
        cudaOccError status =
            cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, dynamic);
        printf("%d\n", status == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : -1);
    }
    return 0;
}
