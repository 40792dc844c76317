// Links that transfers share: on each of them the rates sum to at most its rate at every instant, and no byte is lost.
#include "partitioner/pipeline/Traffic.h"

#include "partitioner/cost/Constants.h"
#include "partitioner/simulate/Simulate.h"
#include "tests/support/PlanBuilder.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <map>
#include <random>

using namespace cleave;
using namespace cleave::partitioner;
using test::ProgramWriter;

namespace {

Cluster cluster(const std::string &backend, int nodes, const std::string &inside) {
  return Cluster::parse(
      fmt::format("name = \"c\"\n[devices.a100]\nbackend = \"{}\"\nmemory_gib = 80\nmemory_gb_per_s = 2000\n"
                  "peak_tflops = {{ fp32 = 20 }}\n[[nodes]]\ncount = {}\ndevices = {{ a100 = 4 }}\n{}\n"
                  "[network]\ngb_per_s_per_node = 20\nlatency_us = 10\n",
                  backend, nodes, inside),
      "c.toml");
}

const std::string aSwitch = "inside = { gb_per_s = 100, latency_us = 3 }",
                  pairs = "inside = { gb_per_s = 100, latency_us = 3, pair_gb_per_s = 40 }",
                  matrix = "[nodes.inside]\nlatency_us = 3\nlink_gb_per_s = { NV = 25, SYS = 9 }\n"
                           "links = [\"X NV1 NV1 NV2\", \"NV1 X NV2 NV1\", \"NV1 NV2 X SYS\", \"NV2 NV1 SYS X\"]\n";

std::vector<std::vector<uint32_t>> groupsOf(const plan::Plan &plan) {
  std::vector<std::vector<uint32_t>> all;
  for (uint32_t g = 0; g < plan.groups()->size(); ++g)
    all.emplace_back(plan.groups()->Get(g)->ranks()->begin(), plan.groups()->Get(g)->ranks()->end());
  return all;
}

/// A plan for dp x tp ranks on each of two stages, in which every stream runs collectives of random sizes over groups
/// of both axes, and the stages exchange messages.
plan::PlanT randomPlan(std::mt19937 &random, bool gpu, uint32_t dp, uint32_t tp) {
  plan::PlanT plan = test::makePlan(dp, tp, 2);
  plan.backend = gpu ? "cuda" : "cpu";
  const auto draw = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(random); };
  for (const uint32_t stage : {0u, 1u}) {
    ProgramWriter p;
    const uint32_t a = p.slot("a", plan::DType::F32, {1 << 22}), b = p.slot("b", plan::DType::F32, {1 << 22});
    const uint32_t segment = p.segment();
    const auto put = [&](uint32_t stream) { p.program.segments[segment]->steps.back()->stream = gpu ? stream : 0; };
    for (int i = 0; i < 12; ++i) {
      p.copy(segment, a, b, draw(1 << 20)), put(0);
      const uint32_t entry = uint32_t(draw(2)) - 1;
      p.allReduce(segment, a, a, draw(1 << 22), entry), put(1 + entry);
      const uint32_t tag = uint32_t(i);
      const bool sends = (i % 2 == 0) == (stage == 0);
      sends ? p.send(segment, b, 0, tag) : p.recv(segment, b, 0, tag);
      put(sends ? 3 : 4);
    }
    p.action(segment);
    plan.programs.push_back(p.finish());
    plan.programs.back()->stage = stage;
  }
  const uint32_t stage = dp * tp;
  for (uint32_t r = 0; r < 2 * stage; ++r) {
    plan.ranks[r]->program = r / stage;
    plan.ranks[r]->peers = {(r + stage) % (2 * stage)};
  }
  for (uint32_t s = 0; s < 2; ++s) {
    for (uint32_t d = 0; d < dp; ++d) {
      std::vector<uint32_t> group;
      for (uint32_t t = 0; t < tp; ++t)
        group.push_back(s * stage + d * tp + t);
      test::addGroup(plan, group, "tp");
    }
    for (uint32_t t = 0; t < tp; ++t) {
      std::vector<uint32_t> group;
      for (uint32_t d = 0; d < dp; ++d)
        group.push_back(s * stage + d * tp + t);
      test::addGroup(plan, group, "dp");
    }
  }
  return plan;
}

/// The most that transfers use of any link at one time, as a fraction of its rate. A link has a name and its users: the
/// flow and the bytes per second of one of its transfers at full speed.
class LinkCheck {
public:
  void use(const std::string &link, double capacity, uint32_t flow, double rate) {
    capacities[link] = capacity;
    links[link][flow] += rate;
  }

  double most(const std::vector<TransferPiece> &traffic) const {
    double most = 0;
    for (const auto &[name, flows] : links)
      for (const TransferPiece &at : traffic) {
        if (at.end <= at.begin || !flows.contains(at.flow))
          continue;
        const double time = at.begin + (at.end - at.begin) / 2;
        double rate = 0;
        for (const TransferPiece &other : traffic)
          if (const auto found = flows.find(other.flow);
              found != flows.end() && other.begin <= time && time < other.end)
            rate += found->second * other.speed;
        most = std::max(most, rate / capacities.at(name));
      }
    return most;
  }

private:
  std::map<std::string, double> capacities;
  std::map<std::string, std::map<uint32_t, double>> links;
};

/// What the transfers of the real ranks use of the networks, PCIe links, ports and pairs of the cluster.
LinkCheck linksOf(const plan::Plan &plan, const Cluster &on, const RankClasses &ranks) {
  LinkCheck check;
  const auto places = on.places(plan.ranks()->size());
  const DeviceConstants &c = constantsOf(on.devices[0]);
  const NodeGroup &node = on.nodes[0];
  const double network = on.network->bytesPerSecond() * c.networkFraction,
               pcie = c.deviceNetworkBytesPerSecond * c.networkFraction;
  const bool links = node.wiring && !node.wiring->matrix.empty();
  const double fraction = links ? c.wireFraction : c.insideFraction;
  const auto groups = groupsOf(plan);
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const uint32_t first = groups[g].front();
    const plan::Rank &rank = *plan.ranks()->Get(first);
    uint32_t entry = 0;
    while (rank.groups()->Get(entry) != g)
      ++entry;
    const uint32_t flow = ranks.classes[ranks.classOf[first]].groups[entry].meeting;
    const double rate = ranks.flows[flow].rate;
    std::map<int64_t, std::vector<uint32_t>> nodes;
    for (const uint32_t r : groups[g])
      nodes[places[r].node].push_back(places[r].device);
    for (const auto &[n, devices] : nodes) {
      if (nodes.size() > 1) {
        check.use(fmt::format("network of {}", n), network, flow, rate);
        for (const uint32_t d : devices)
          check.use(fmt::format("pcie of {} {}", n, d), pcie, flow, rate / double(devices.size()));
      }
      if (devices.size() < 2)
        continue;
      for (const uint32_t d : devices)
        if (!links)
          check.use(fmt::format("port of {} {}", n, d), node.inside->gbPerS * 1e9 * fraction, flow, rate);
      const GroupRings rings = node.rings(devices);
      for (const RingHop &hop : rings.hops)
        if (hop.nvlink)
          check.use(fmt::format("pair of {} {} {}", n, hop.from, hop.to),
                    node.pairGbPerS(hop.from, hop.to) * 1e9 * fraction, flow,
                    hop.share * node.pairGbPerS(hop.from, hop.to) * rate / rings.gbPerS);
    }
  }
  for (uint32_t r = 0; r < places.size(); ++r) {
    const uint32_t peer = plan.ranks()->Get(r)->peers()->Get(0), flow = ranks.classes[ranks.classOf[r]].peers[0].sent;
    const double rate = ranks.flows[flow].rate;
    if (places[r].node != places[peer].node) {
      check.use(fmt::format("network of {}", places[r].node), network, flow, rate);
      check.use(fmt::format("pcie of {} {}", places[r].node, places[r].device), pcie, flow, rate);
    } else if (!links) { // a message reaches another fraction of a port's rate
      check.use(fmt::format("port of {} {}", places[r].node, places[r].device), node.inside->gbPerS * 1e9 * fraction,
                flow, rate / c.messageFraction * fraction);
    } else if (node.wiring->matrix[places[r].device][places[peer].device].kind == WireKind::Nvlink) {
      const double pair = node.pairGbPerS(places[r].device, places[peer].device) * 1e9;
      check.use(fmt::format("pair of {} {} {}", places[r].node, places[r].device, places[peer].device), pair * fraction,
                flow, rate / c.messageFraction * fraction);
    }
  }
  return check;
}

} // namespace

TEST_CASE("transfers on random links: rates fit the links, and every transfer moves all of its bytes") {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    const auto part = [&](double most) { return std::uniform_real_distribution<>(0.01, most)(random); };
    const uint32_t links = 1 + random() % 6;
    std::vector<Flow> flows(1 + random() % 8);
    for (Flow &flow : flows) { // of one to three transfers at the same time
      const double count = double(1 + random() % 3);
      for (uint32_t link = 0; link < links; ++link)
        if (random() % 2) {
          flow.uses.push_back({link, count * part(1)});
          flow.stretch = std::max(flow.stretch, flow.uses.back().share);
        }
    }
    std::vector<TransferPiece> pieces;
    Traffic traffic(flows, links, &pieces);
    std::vector<double> begins, lengths, moved(flows.size(), 0), asked(flows.size(), 0);
    const auto add = [&](double after) {
      const auto flow = static_cast<uint32_t>(random() % flows.size());
      begins.push_back(after + part(2)), lengths.push_back(part(3));
      asked[flow] += lengths.back();
      CHECK(traffic.add(flow, begins.back(), lengths.back()) + 1 == begins.size());
    };
    for (int i = 0; i < 10; ++i)
      add(0);
    double last = 0;
    uint32_t ended = 0;
    while (const auto next = traffic.next()) {
      CHECK(next->time >= last);
      CHECK(next->time >= begins[next->transfer] + lengths[next->transfer] - 1e-12);
      last = next->time;
      if (++ended < 40 && random() % 2) // as a plan does: what begins later depends on what has ended
        add(last);
    }
    CHECK(ended == begins.size());
    for (const TransferPiece &piece : pieces) {
      CHECK(piece.speed > 0);
      CHECK(piece.speed <= 1);
      moved[piece.flow] += piece.speed * (piece.end - piece.begin);
    }
    for (size_t f = 0; f < flows.size(); ++f)
      CHECK(moved[f] == Approx(asked[f]));
    LinkCheck check;
    for (uint32_t f = 0; f < flows.size(); ++f)
      for (const Flow::Use &use : flows[f].uses)
        check.use(fmt::format("{}", use.link), 1, f, use.share / flows[f].stretch);
    CHECK(check.most(pieces) <= 1 + 1e-9);
  }
}

TEST_CASE("transfers have equal speeds on a link, however many a flow has at the same time") {
  // Each transfer uses half of the link; four are one flow, which takes twice as long alone.
  const std::vector<Flow> flows{{.stretch = 1, .uses = {{0, 0.5}}}, {.stretch = 2, .uses = {{0, 2}}}};
  Traffic traffic(flows, 1, nullptr);
  traffic.add(0, 0, 1), traffic.add(1, 0, 2);
  CHECK(traffic.next()->time == Approx(2.5));
  CHECK(traffic.next()->time == Approx(2.5));
  // Where another link slows a flow, the rest of this one is for others.
  const std::vector<Flow> slow{{.stretch = 1, .uses = {{0, 1}}}, {.stretch = 4, .uses = {{0, 1}, {1, 4}}}};
  Traffic rest(slow, 2, nullptr);
  rest.add(0, 0, 1), rest.add(1, 0, 10);
  CHECK(rest.next()->time == Approx(1 / 0.75));
}

TEST_CASE("whatever random plans send, no link carries more than its rate") {
  std::mt19937 random(11);
  int slowed = 0;
  for (const std::string &inside : {aSwitch, pairs, matrix})
    for (const bool gpu : {true, false})
      for (const auto &[dp, tp] :
           {std::pair{2u, 2u}, std::pair{4u, 1u}, std::pair{1u, 3u}, std::pair{3u, 2u}, std::pair{4u, 4u}})
        for (int round = 0; round < 4; ++round) {
          const Cluster on = cluster(gpu ? "cuda" : "cpu", 8, inside);
          const auto file = test::seal(randomPlan(random, gpu, dp, tp));
          const Simulation s = simulate(file->plan(), on, {.traffic = true});
          CHECK(linksOf(file->plan(), on, s.ranks).most(s.traffic) <= 1 + 1e-9);
          for (const TransferPiece &piece : s.traffic)
            slowed += piece.speed < 0.99;
          for (const ClassTimes &times : s.times)
            CHECK(times.busy + times.communication + times.idle == Approx(s.stepSeconds));
        }
  CHECK(slowed > 100); // so that the check above means something
}

TEST_CASE("collectives of two axes that use one network at the same time take turns in speed") {
  // Two ranks on each of two nodes. Each rank reduces over dp in stream 1 and over "tp" in stream 2; both cross nodes.
  plan::PlanT plan = test::makePlan(2, 2);
  plan.backend = "cuda";
  ProgramWriter p;
  const uint32_t a = p.slot("a", plan::DType::F32, {1 << 24});
  const uint32_t segment = p.segment();
  for (const uint32_t entry : {0u, 1u}) {
    p.allReduce(segment, a, a, 1 << 24, entry);
    p.program.segments[segment]->steps.back()->stream = 1 + entry;
  }
  p.action(segment);
  plan.programs.push_back(p.finish());
  for (auto &rank : plan.ranks)
    rank->program = 0;
  test::addGroup(plan, {0, 2}, "dp"), test::addGroup(plan, {1, 3}, "dp");
  plan::PlanT alone(plan);
  test::addGroup(plan, {0, 3}, "tp"), test::addGroup(plan, {1, 2}, "tp");
  alone.programs[0]->segments[0]->steps.pop_back();
  Cluster on = cluster("cuda", 2, aSwitch);
  on.nodes[0].devices[0].count = 2;
  const auto secondsOf = [&](const plan::PlanT &each) { return simulate(test::seal(each)->plan(), on).stepSeconds; };
  const double bytes = 4.0 * (1 << 24), network = 20e9 * constantsOf(on.devices[0]).networkFraction;
  CHECK(secondsOf(plan) - secondsOf(alone) == Approx(2 * bytes / network)); // four groups, then two, share the network
}
