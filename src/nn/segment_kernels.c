// SPDX-License-Identifier: MIT
// segment_kernels.c: norms, sums over edges, attention and softmax in float32 (segment.h), compiled once per instruction set.
#include "nn/segment.h"

#include <math.h>
#include <string.h>

#include "nn/simd.h"

extern const nn_segment_kernels SIMD_SYMBOL(nn_segment_kernels);

SIMD_INLINE float lane_sum(simd v)
{
    float lanes[SIMD_WIDTH] __attribute__((aligned(SIMD_WIDTH * 4)));
    simd_store(lanes, v);
    for (int half = SIMD_WIDTH / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lanes[k] += lanes[k + half];
    return lanes[0];
}

static void gather(const nn_edges *edges, int begin, int end, int H, const float *x, float *restrict out)
{
    for (int e = begin; e < end; e++, out += H) {
        const float *s = x + (size_t)edges->sender[e] * 2 * (size_t)H, *r = x + ((size_t)edges->receiver[e] * 2 + 1) * (size_t)H;
        for (int k = 0; k < H; k += SIMD_WIDTH) simd_store(out + k, simd_load(s + k) + simd_load(r + k));
    }
}

// Sum of (y - mean)² over the first `width` columns. The padding has none: taken off again, what it adds would cost digits where the mean is
// large beside the deviations.
SIMD_INLINE float squares_about(float mean, int width, const float *y)
{
    simd square = simd_set(0);
    int k = 0;
    for (; k + SIMD_WIDTH <= width; k += SIMD_WIDTH) {
        const simd d = simd_load(y + k) - mean;
        square += d * d;
    }
    float sum = lane_sum(square);
    for (; k < width; k++) sum += (y[k] - mean) * (y[k] - mean);
    return sum;
}

static void norm(const nn_norm *layer, int n, float *restrict y, float *restrict z, float *restrict inverse)
{
    const int F = layer->F;
    const float scale = 1.0f / (float)layer->width;
    for (int i = 0; i < n; i++, y += F) {
        simd sum = simd_set(0);
        for (int k = 0; layer->bias && k < F; k += SIMD_WIDTH) sum += simd_load(y + k);
        const float mean = layer->bias ? lane_sum(sum) * scale : 0.0f;
        const float variance = squares_about(mean, layer->width, y) * scale;
        const float factor = 1.0f / __builtin_sqrtf(variance + layer->epsilon);
        for (int k = 0; k < F; k += SIMD_WIDTH) {
            const simd v = (simd_load(y + k) - mean) * factor;
            simd out = v * simd_load(layer->weight + k);
            if (layer->bias) out += simd_load(layer->bias + k);
            if (z) simd_store(z + (size_t)i * (size_t)F + k, v);
            simd_store(y + k, out);
        }
        if (inverse) inverse[i] = factor;
    }
}

static void norm_backward(const nn_norm *layer, int n, const float *restrict z, const float *restrict inverse,
                          const float *restrict out_bar, float *restrict y_bar)
{
    const int F = layer->F;
    const float scale = 1.0f / (float)layer->width;
    for (int i = 0; i < n; i++, z += F, out_bar += F, y_bar += F) {
        simd sum = simd_set(0), along = simd_set(0);
        for (int k = 0; k < F; k += SIMD_WIDTH) {
            const simd g = simd_load(layer->weight + k) * simd_load(out_bar + k);
            sum += g;
            along += g * simd_load(z + k);
        }
        const float mean = layer->bias ? lane_sum(sum) * scale : 0.0f, mean_along = lane_sum(along) * scale;
        for (int k = 0; k < F; k += SIMD_WIDTH) {
            const simd g = simd_load(layer->weight + k) * simd_load(out_bar + k);
            simd_store(y_bar + k, (g - mean - simd_load(z + k) * mean_along) * inverse[i]);
        }
        for (int k = layer->width; k < F; k++) y_bar[k] = 0; // the padding, where a mean was subtracted
    }
}

static void gates(int n, int F, const float *weights, const float bias[2], const float *restrict e, float *restrict gate)
{
    for (int i = 0; i < n; i++, e += F) {
        simd sum[2] = {simd_set(0), simd_set(0)};
        for (int k = 0; k < F; k += SIMD_WIDTH) {
            const simd v = simd_load(e + k);
            sum[0] += v * simd_load(weights + k);
            sum[1] += v * simd_load(weights + F + k);
        }
        for (int g = 0; g < 2; g++) gate[2 * i + g] = 1.0f / (1.0f + __builtin_expf(-(lane_sum(sum[g]) + bias[g])));
    }
}

SIMD_INLINE void add_scaled(int F, float factor, const float *restrict from, float *restrict to)
{
    for (int k = 0; k < F; k += SIMD_WIDTH) simd_store(to + k, simd_load(to + k) + factor * simd_load(from + k));
}

static void attention(const nn_edges *edges, int begin, int end, int F, const float *value, const float *gate, float *out,
                      int stride)
{
    for (int i = begin; i < end; i++, out += stride) {
        memset(out, 0, sizeof *out * 2 * (size_t)F);
        for (int k = edges->first_incoming[i]; k < edges->first_incoming[i + 1]; k++) {
            const size_t e = (size_t)edges->incoming[k];
            add_scaled(F, gate[2 * e + 1] * edges->envelope[e], value + e * (size_t)F, out);
        }
        for (size_t e = (size_t)edges->first[i]; e < (size_t)edges->first[i + 1]; e++)
            add_scaled(F, gate[2 * e] * edges->envelope[e], value + e * (size_t)F, out + F);
    }
}

static void segment_sum(const nn_edges *edges, int begin, int end, int H, const float *x, float *out)
{
    for (int i = begin; i < end; i++, out += 2 * (size_t)H) {
        memset(out, 0, sizeof *out * 2 * (size_t)H);
        for (size_t e = (size_t)edges->first[i]; e < (size_t)edges->first[i + 1]; e++)
            add_scaled(H, 1.0f, x + e * (size_t)H, out);
        for (int k = edges->first_incoming[i]; k < edges->first_incoming[i + 1]; k++)
            add_scaled(H, 1.0f, x + (size_t)edges->incoming[k] * (size_t)H, out + H);
    }
}

static void attention_backward(const nn_edges *edges, int begin, int end, int F, const float *weights, const float *value,
                               const float *gate, const float *sums_bar, float *e_bar, float *value_bar, float *envelope_bar)
{
    for (size_t e = (size_t)begin; e < (size_t)end; e++, value_bar += F) {
        const float *sent = sums_bar + (2 * (size_t)edges->sender[e] + 1) * (size_t)F;
        const float *received = sums_bar + 2 * (size_t)edges->receiver[e] * (size_t)F, *m = value + e * (size_t)F;
        const float c = edges->envelope[e], gs = gate[2 * e], gr = gate[2 * e + 1];
        float *bar = e_bar + e * (size_t)F;
        simd send_sum = simd_set(0), receive_sum = simd_set(0);
        for (int k = 0; k < F; k += SIMD_WIDTH) {
            const simd v = simd_load(m + k), s = simd_load(sent + k), r = simd_load(received + k);
            send_sum += v * s;
            receive_sum += v * r;
            simd_store(value_bar + k, simd_load(bar + k) + c * (gs * s + gr * r));
        }
        const float send = lane_sum(send_sum), receive = lane_sum(receive_sum);
        envelope_bar[e] += gs * send + gr * receive;
        const float by_send = send * c * gs * (1.0f - gs), by_receive = receive * c * gr * (1.0f - gr);
        for (int k = 0; k < F; k += SIMD_WIDTH)
            simd_store(bar + k, simd_load(bar + k) + by_send * simd_load(weights + k) + by_receive * simd_load(weights + F + k));
    }
}

static size_t row_of(const nn_segments *segments, int k)
{
    return (size_t)(segments->row ? segments->row[k] : k);
}

static void segment_softmax(const nn_segments *segments, int begin, int end, int H, const float *x, float *share)
{
    for (int i = begin; i < end; i++)
        for (int c = 0; c < H; c += SIMD_WIDTH) {
            const int first = segments->first[i], last = segments->first[i + 1];
            simd largest = simd_set(-INFINITY), sum = simd_set(0);
            for (int k = first; k < last; k++) {
                const simd v = simd_load(x + row_of(segments, k) * (size_t)H + c);
                largest = simd_select(v > largest, v, largest);
            }
            for (int k = first; k < last; k++) {
                const size_t at = row_of(segments, k) * (size_t)H + (size_t)c;
                const simd v = simd_exp(simd_load(x + at) - largest);
                simd_store(share + at, v);
                sum += v;
            }
            for (int k = first; k < last; k++) {
                float *at = share + row_of(segments, k) * (size_t)H + c;
                simd_store(at, simd_load(at) / sum);
            }
        }
}

static void segment_softmax_backward(const nn_segments *segments, int begin, int end, int H, const float *share,
                                     const float *share_bar, float *x_bar)
{
    for (int i = begin; i < end; i++)
        for (int c = 0; c < H; c += SIMD_WIDTH) {
            simd mean = simd_set(0); // of share_bar, weighted with the shares
            for (int k = segments->first[i]; k < segments->first[i + 1]; k++) {
                const size_t at = row_of(segments, k) * (size_t)H + (size_t)c;
                mean += simd_load(share + at) * simd_load(share_bar + at);
            }
            for (int k = segments->first[i]; k < segments->first[i + 1]; k++) {
                const size_t at = row_of(segments, k) * (size_t)H + (size_t)c;
                simd_store(x_bar + at, simd_load(share + at) * (simd_load(share_bar + at) - mean));
            }
        }
}

static void add(size_t n, float *restrict a, const float *restrict b)
{
    for (size_t i = 0; i < n; i += SIMD_WIDTH) simd_store(a + i, simd_load(a + i) + simd_load(b + i));
}

static void multiply(size_t n, float *restrict a, const float *restrict b)
{
    for (size_t i = 0; i < n; i += SIMD_WIDTH) simd_store(a + i, simd_load(a + i) * simd_load(b + i));
}

const nn_segment_kernels SIMD_SYMBOL(nn_segment_kernels) = {
    .gather = gather,
    .norm = norm,
    .norm_backward = norm_backward,
    .gates = gates,
    .attention = attention,
    .segment_sum = segment_sum,
    .attention_backward = attention_backward,
    .segment_softmax = segment_softmax,
    .segment_softmax_backward = segment_softmax_backward,
    .add = add,
    .multiply = multiply,
};
