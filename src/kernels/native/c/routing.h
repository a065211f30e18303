// Which experts a row uses, and the sum of what they gave.
#ifndef COLI_ROUTING_H
#define COLI_ROUTING_H

#include "rows.h"

static bool isTaken(const int32_t *ids, int64_t slots, int64_t id) {
  for (int64_t s = 0; s < slots; s++)
    if (ids[s] == id) return true;
  return false;
}

// The value by which a row chooses column i.
INLINE float chosenBy(const TopKCall *c, const float *x, int64_t i) { return c->bias ? x[i] + c->bias[i] : x[i]; }

static float scoreOfGroup(const TopKCall *c, const float *x, int64_t group) {
  const int64_t first = group * (c->columns / c->groups), end = first + c->columns / c->groups;
  int64_t best = first, second = -1;
  for (int64_t i = first + 1; i < end; i++)
    if (chosenBy(c, x, i) > chosenBy(c, x, best)) best = i;
  if (!c->sumOfTwo) return chosenBy(c, x, best);
  for (int64_t i = first; i < end; i++)
    if (i != best && (second < 0 || chosenBy(c, x, i) > chosenBy(c, x, second))) second = i;
  return chosenBy(c, x, best) + chosenBy(c, x, second);
}

// Marks the groups that take part. As for columns, a NaN stays where it is the first.
static void keepGroups(const TopKCall *c, const float *x, bool kept[MAX_GROUPS]) {
  float scores[MAX_GROUPS];
  for (int64_t g = 0; g < c->groups; g++) {
    scores[g] = scoreOfGroup(c, x, g);
    kept[g] = false;
  }
  for (int64_t n = 0; n < c->keptGroups; n++) {
    int64_t best = -1;
    for (int64_t g = 0; g < c->groups; g++)
      if (!kept[g] && (best < 0 || scores[g] > scores[best])) best = g;
    kept[best] = true;
  }
}

// The first index, not yet taken, whose value no later one exceeds: with NaN this is not the largest.
static int64_t bestOf(const TopKCall *c, const float *x, const bool *kept, const int32_t *ids, int64_t slot) {
  const int64_t perGroup = c->columns / c->groups;
  int64_t best = -1;
  for (int64_t g = 0; g < c->groups; g++) {
    if (kept && !kept[g]) continue;
    for (int64_t i = g * perGroup; i < (g + 1) * perGroup; i++)
      if ((best < 0 || chosenBy(c, x, i) > chosenBy(c, x, best)) && !isTaken(ids, slot, i)) best = i;
  }
  return best;
}

static void topK(TopKCall c, int64_t row0, int64_t row1) {
  bool kept[MAX_GROUPS];
  for (int64_t row = row0; row < row1; row++) {
    const float *x = c.x + row * c.columns;
    int32_t *ids = c.ids + row * c.k;
    float *weights = c.weights + row * c.k;
    if (c.groups > 1) keepGroups(&c, x, kept);
    for (int64_t slot = 0; slot < c.k; slot++) {
      const int64_t best = bestOf(&c, x, c.groups > 1 ? kept : NULL, ids, slot);
      ids[slot] = (int32_t)best;
      weights[slot] = x[best];
    }
    if (c.weightRule == NORMALISED) divideRow(weights, c.k, sumOf(weights, c.k, false) + 1e-20f);
    if (c.weightRule == SOFTMAX_OF_CHOSEN) softmax(weights, weights, c.k, 0, 1);
    scale(weights, c.factor, 0, c.k);
  }
}

static void combine(float *x, const float *parts, const float *weights, int64_t k, const float *shared,
                    int64_t columns, int64_t row0, int64_t row1) {
  for (int64_t row = row0; row < row1; row++) {
    const float *first = parts + row * k * columns;
    const float *factors = weights + row * k;
    float *to = x + row * columns;
    EACH_16(0, columns) {
      Lanes sum = zeros();
      for (int64_t slot = 0; slot < k; slot++) {
        const Lanes product = scale16(loadUpTo16(first + slot * columns + at, left), factors[slot]);
        sum = slot == 0 ? product : add16(sum, product);
      }
      if (shared) sum = add16(sum, loadUpTo16(shared + row * columns + at, left));
      storeUpTo16(to + at, add16(loadUpTo16(to + at, left), sum), left);
    }
  }
}

#endif
