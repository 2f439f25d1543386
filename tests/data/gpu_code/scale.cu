// The kernel behind the files beside it; tests/collect/binaries/test_fatbin.py says how each was compiled.
__global__ void scale(float *x, float f, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= f;
}
