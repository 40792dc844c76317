// Implements waits between streams by events.
#include "runtime/cuda/executor/Lanes.h"
#include "runtime/plan/Text.h"

#include <optional>
#include <set>

namespace cleave::cuda {

Lane::Lane(const plan::Plan &plan, std::vector<ResolvedAction> &actions, std::map<uint32_t, Stream> &streams,
           size_t steps)
    : actions(actions), streams(streams), fork(Event::make()) {
  size_t inPiece = 0;
  for (size_t a = 0; a < actions.size(); ++a) {
    const size_t own = actions[a].segment->ops.size();
    if (list.empty() || inPiece + own > steps) {
      list.push_back({a, a});
      inPiece = 0;
    }
    inPiece += own;
    list.back().end = a + 1;
    pieceOf.push_back(list.size() - 1);
  }
  makeEvents(streams);
  makeNames(plan);
}

void Lane::makeNames(const plan::Plan &plan) {
  for (const ResolvedAction &action : actions) {
    const auto [entry, added] = names.try_emplace(action.segment);
    if (!added)
      continue;
    const plan::Segment &segment = *action.segment->info;
    entry->second.segment = rangeName(text(segment.name()));
    for (uint32_t s = 0; s < action.segment->ops.size(); ++s)
      entry->second.paths.push_back(rangeName(pathOf(plan, *segment.steps()->Get(s))));
  }
}

void Lane::makeEvents(std::map<uint32_t, Stream> &streams) {
  for (const ResolvedAction &action : actions) {
    waits.emplace_back(action.segment->ops.size());
    for (uint32_t s = 0; s < action.segment->ops.size(); ++s) {
      const uint32_t stream = action.segment->info->steps()->Get(s)->stream();
      if (!streams.contains(stream))
        streams.emplace(stream, Stream::make(stream != 0));
      if (stream != 0 && !joins.contains(stream))
        joins.emplace(stream, Event::make());
    }
  }
  for (size_t a = 0; a < actions.size(); ++a)
    if (actions[a].info->waits())
      for (const plan::Wait *wait : *actions[a].info->waits()) {
        if (pieceOf[wait->on_action()] != pieceOf[a])
          continue; // pieces run one after another
        int32_t &event = waits[wait->on_action()][wait->on_step()].after;
        if (event < 0) {
          event = static_cast<int32_t>(events.size());
          events.push_back(Event::make());
        }
        waits[a][wait->step()].before.push_back(static_cast<uint32_t>(event));
      }
}

void Lane::enqueue(const Piece &piece, Queue &queue, int whichInput, const Around *around) const {
  const CUstream compute = streams.at(0).get();
  std::set<uint32_t> used;
  fork.record(compute);
  RunContext context;
  for (size_t a = piece.begin; a < piece.end; ++a) {
    const ResolvedAction &action = actions[a];
    context.microbatch = action.microbatch;
    const Names &named = names.at(action.segment);
    const Range whole(named.segment, action.microbatch);
    std::optional<Range> module;
    for (uint32_t s = 0; s < action.segment->ops.size(); ++s) {
      const uint32_t stream = action.segment->info->steps()->Get(s)->stream();
      queue.stream = streams.at(stream).get();
      if (s == 0 || named.paths[s] != named.paths[s - 1]) {
        module.reset(); // end this range before the next begins
        module.emplace(named.paths[s]);
      }
      if (stream != 0 && used.insert(stream).second)
        fork.holdUp(queue.stream);
      for (uint32_t event : waits[a][s].before)
        events[event].holdUp(queue.stream);
      if (around)
        (*around)(a, s, queue.stream, true);
      action.segment->ops[s]->run(action.tables[whichInput], context);
      if (around)
        (*around)(a, s, queue.stream, false);
      if (waits[a][s].after >= 0)
        events[static_cast<size_t>(waits[a][s].after)].record(queue.stream);
    }
  }
  for (uint32_t stream : used) {
    joins.at(stream).record(streams.at(stream).get());
    joins.at(stream).holdUp(compute);
  }
  queue.stream = compute;
}

} // namespace cleave::cuda
