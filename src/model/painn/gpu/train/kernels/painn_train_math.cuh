/* SPDX-License-Identifier: MIT */
/* painn_train_math.cuh: the activation and its derivatives, in float32, and numbers that a thread loads and stores together.
 * A sigmoid that saturates: no overflow. */
#ifndef PAINN_TRAIN_MATH_CUH
#define PAINN_TRAIN_MATH_CUH

#include "gpu/ptx/primitives.cuh"
#include "model/painn/gpu/train/painn_train_gpu.h"

enum { TRAIN_SILU = 0 }; /* PAINN_SILU; else the shifted softplus */

static __device__ __forceinline__ float sigmoid(float x)
{
    return fast_reciprocal(1.0f + expf(-x));
}

static __device__ __forceinline__ float activation(int kind, float x)
{
    if (kind == TRAIN_SILU) return x * sigmoid(x);
    return (x > 0 ? x : 0.0f) + log1pf(expf(-fabsf(x))) - 0.693147181f;
}

static __device__ __forceinline__ float activation_slope(int kind, float x)
{
    const float s = sigmoid(x);
    return kind == TRAIN_SILU ? s * (1.0f + x * (1.0f - s)) : s;
}

/* silu'' = σ (1 − σ) (2 + x (1 − 2σ)); the shifted softplus has σ (1 − σ). */
static __device__ __forceinline__ float activation_second(int kind, float x)
{
    const float s = sigmoid(x), slope = s * (1.0f - s);
    return kind == TRAIN_SILU ? slope * (2.0f + x * (1.0f - 2.0f * s)) : slope;
}

/* ---- N numbers, of neighboring features */

template <int N> struct numbers {
    float v[N];
};

template <int N> static __device__ __forceinline__ numbers<N> all_of(float value)
{
    numbers<N> r;
    for (int k = 0; k < N; k++) r.v[k] = value;
    return r;
}

/* N 1, 2 or 4: in one access, to an address that is a multiple of its size. */
template <int N> static __device__ __forceinline__ numbers<N> numbers_at(const float *from)
{
    numbers<N> r;
    if (N == 1) r.v[0] = *from;
    if (N == 2) {
        const float2 two = *(const float2 *)from;
        r.v[0] = two.x;
        r.v[N - 1] = two.y;
    }
    if (N == 4) {
        const float4 four = *(const float4 *)from;
        const float v[4] = {four.x, four.y, four.z, four.w};
        for (int k = 0; k < N; k++) r.v[k] = v[k];
    }
    return r;
}
template <int N> static __device__ __forceinline__ void put(float *to, const numbers<N> &from)
{
    if (N == 1) *to = from.v[0];
    if (N == 2) *(float2 *)to = make_float2(from.v[0], from.v[N - 1]);
    if (N == 4) *(float4 *)to = make_float4(from.v[0], from.v[1 % N], from.v[2 % N], from.v[3 % N]);
}
/* Into places of painn_first_x. */
template <int N> static __device__ __forceinline__ void put_first_x(float *to, const numbers<N> &from)
{
    if (N < 4) put(to, from);
    for (int k = 0; k + 3 < N; k += 4) {
        *(float2 *)to = make_float2(from.v[k], from.v[k + 1]);
        *(float2 *)(to + 4) = make_float2(from.v[k + 2], from.v[k + 3]);
    }
}
/* Zeros unless `there`. */
template <int N> static __device__ __forceinline__ numbers<N> numbers_if(bool there, const float *from)
{
    return there ? numbers_at<N>(from) : all_of<N>(0);
}

#define OF_EACH(N, expression)                                                                                                   \
    numbers<N> r;                                                                                                                \
    for (int k = 0; k < N; k++) r.v[k] = expression;                                                                             \
    return r

template <int N> static __device__ __forceinline__ numbers<N> operator+(const numbers<N> &a, const numbers<N> &b)
{
    OF_EACH(N, a.v[k] + b.v[k]);
}
template <int N> static __device__ __forceinline__ numbers<N> operator-(const numbers<N> &a, const numbers<N> &b)
{
    OF_EACH(N, a.v[k] - b.v[k]);
}
template <int N> static __device__ __forceinline__ numbers<N> operator*(const numbers<N> &a, const numbers<N> &b)
{
    OF_EACH(N, a.v[k] * b.v[k]);
}
template <int N> static __device__ __forceinline__ numbers<N> operator/(const numbers<N> &a, const numbers<N> &b)
{
    OF_EACH(N, a.v[k] * fast_reciprocal(b.v[k]));
}
template <int N> static __device__ __forceinline__ numbers<N> square_root(const numbers<N> &a)
{
    OF_EACH(N, fast_sqrt(a.v[k]));
}
template <int N> static __device__ __forceinline__ numbers<N> activation(int kind, const numbers<N> &x)
{
    OF_EACH(N, activation(kind, x.v[k]));
}
template <int N> static __device__ __forceinline__ numbers<N> activation_slope(int kind, const numbers<N> &x)
{
    OF_EACH(N, activation_slope(kind, x.v[k]));
}
template <int N> static __device__ __forceinline__ numbers<N> activation_second(int kind, const numbers<N> &x)
{
    OF_EACH(N, activation_second(kind, x.v[k]));
}

#endif
