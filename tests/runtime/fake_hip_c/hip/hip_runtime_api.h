/* A stand-in for HIP's header and library in one: device memory is host memory, and every call is told on the error output. */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { hipSuccess = 0, hipErrorInvalidValue = 1 } hipError_t;
typedef enum { hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost = 2 } hipMemcpyKind;
typedef const char *hipModule_t, *hipFunction_t;
typedef int *hipStream_t;
typedef int hipEvent_t;
#define HIP_LAUNCH_PARAM_BUFFER_POINTER ((void *)0x01)
#define HIP_LAUNCH_PARAM_BUFFER_SIZE ((void *)0x02)
#define HIP_LAUNCH_PARAM_END ((void *)0x03)

static void *allocated[64];
static size_t allocated_bytes[64];
static int allocations, stream_number = 7, events;

static hipError_t hipModuleLoad(hipModule_t *module, const char *file) {
  FILE *opened = fopen(file, "rb");
  char magic[4] = {0};
  if (!opened || fread(magic, 1, 4, opened) != 4 || memcmp(magic, "\177ELF", 4)) return hipErrorInvalidValue;
  fclose(opened);
  *module = file;
  return hipSuccess;
}
static hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
  fprintf(stderr, "function %s\n", name);
  *function = name;
  return module ? hipSuccess : hipErrorInvalidValue;
}
static hipError_t hipStreamCreate(hipStream_t *stream) { return *stream = &stream_number, hipSuccess; }
static hipError_t hipEventCreate(hipEvent_t *event) { return *event = events++, hipSuccess; }
static hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  fprintf(stderr, "event %d on stream %d\n", event, *stream);
  return hipSuccess;
}
static hipError_t hipEventElapsedTime(float *time, hipEvent_t begin, hipEvent_t end) { return *time = (float)(end - begin), hipSuccess; }
static hipError_t hipStreamSynchronize(hipStream_t stream) { return fprintf(stderr, "synchronize %d\n", *stream), hipSuccess; }
static hipError_t hipMalloc(void **memory, size_t bytes) {
  allocated[allocations] = *memory = malloc(bytes);
  allocated_bytes[allocations] = bytes;
  fprintf(stderr, "malloc %d %zu\n", allocations++, bytes);
  return hipSuccess;
}
static hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
  memcpy(to, from, bytes);
  fprintf(stderr, "copy %d %zu on stream %d\n", kind, bytes, *stream);
  return hipSuccess;
}
static hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz,
                                        unsigned shared, hipStream_t stream, void **params, void **extra) {
  if (params || extra[0] != HIP_LAUNCH_PARAM_BUFFER_POINTER || extra[2] != HIP_LAUNCH_PARAM_BUFFER_SIZE || extra[4] != HIP_LAUNCH_PARAM_END)
    return hipErrorInvalidValue;
  size_t bytes = *(size_t *)extra[3];
  fprintf(stderr, "launch %s %u %u %u x %u %u %u shared %u on stream %d:", f, x, y, z, threads, ty, tz, shared, *stream);
  for (size_t at = 0; at + 8 <= bytes; at += 8)
    for (int i = 0; i < allocations; i++)
      if (!memcmp((char *)extra[1] + at, &allocated[i], 8)) fprintf(stderr, " %zu=%d", at, i);
  fprintf(stderr, "\n");
  memset(allocated[allocations - 1], 42, allocated_bytes[allocations - 1]); /* what the kernel would do: write its result */
  return hipSuccess;
}
