/** Child process of `peer`: one measurement of this engine. Argument: an OurRequest as JSON. */

import { readModel } from '../../src/engine/model-files.ts';
import { Runtime } from '../../src/engine/runtime.ts';
import { Session } from '../../src/engine/session.ts';
import { countersSince } from '../../src/experts/counters.ts';
import { variedIds } from '../subject.ts';
import { ourOptions } from './our-options.ts';
import { type ChildResult, type OurRequest, SEED, WARM_SEED } from './work.ts';

async function measure(request: OurRequest): Promise<ChildResult> {
  const { work } = request;
  const runtime = await Runtime.open(ourOptions(request, readModel(request).shape));
  const { info, model, store } = runtime;
  const session = new Session(runtime);
  const feed = (ids: readonly number[]) => {
    session.feed(ids);
    return model.logits(ids.length - 1, 1);
  };
  const warm = variedIds(work.warmTokens + work.warmSingles, info.vocabSize, WARM_SEED);
  feed(warm.slice(0, work.warmTokens));
  for (const id of warm.slice(work.warmTokens)) feed([id]);
  session.truncate(0);

  const ids = variedIds(work.promptTokens + work.decodeTokens, info.vocabSize, SEED);
  const prompt = ids.slice(0, work.promptTokens);
  if (work.decodeTokens > 0) feed(prompt);
  store.settle();
  const before = { ...store.counters };
  const begun = performance.now();
  let logits: Float32Array | undefined;
  if (work.decodeTokens === 0) logits = feed(prompt);
  for (let i = work.promptTokens; i < ids.length; i++) logits = feed([ids[i]]);
  const seconds = (performance.now() - begun) / 1000;

  const used = countersSince(store.counters, before);
  const { maxRSS, majorPageFault } = process.resourceUsage();
  const result = {
    tokensPerSecond: (work.decodeTokens || work.promptTokens) / seconds,
    top: logits!.reduce((best, value, id) => (value > logits![best] ? id : best), 0),
    maxRssBytes: maxRSS * 1024,
    majorFaults: majorPageFault,
    about: [
      `kernels ${info.kernels}, ${info.threads} lanes, ${info.plan.expertSlots} expert slots of ${info.totalExperts}`,
    ],
    bytesRead: used.bytesRead,
  };
  await runtime.close();
  return result;
}

console.log(JSON.stringify(await measure(JSON.parse(process.argv[2]))));
