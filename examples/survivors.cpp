// SPDX-License-Identifier: Apache-2.0
// Fits a line to points; each rank has a part of the points. If ranks die, the survivors shrink the communicator, agree
// on a step, and continue from there. Rank 0 of the survivors writes the result to a file.
//
//   mpirun --enable-recovery -n 4 survivors line.txt
//   mpirun --enable-recovery -n 4 survivors line.txt 3000 1@1000 2@2000   rank 1 dies at step 1000, rank 2 at step 2000
#include <lockstep.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace {

using lockstep::Communicator;
using lockstep::text;

struct Model {
  std::array<double, 2> line = {0, 0};  // y at x = 0, and the slope
  int step = 0;
};

long long now_us() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::microseconds(1); }

void say(const std::string& words) { std::cout << words + '\n' << std::flush; }

class Training {
 public:
  Training(int rank, int steps, std::map<int, int> deaths) : rank_(rank), steps_(steps), deaths_(std::move(deaths)) {}

  void run(Communicator& all) {
    while (model_.step < steps_) {
      const auto dies = deaths_.find(rank_);
      if (dies != deaths_.end() && dies->second == model_.step) {
        say(text("rank ", rank_, " dies at ", now_us()));
        ::kill(::getpid(), SIGKILL);
      }
      step(all);
    }
  }

  // Makes the survivors equal again. Some may have finished a step that others have not, so all take the model of the
  // rank with the fewest steps.
  void go_on(Communicator& all) {
    std::vector<int> steps(static_cast<std::size_t>(all.size()));
    all.all_gather(std::vector{model_.step}, steps);
    const auto least = std::ranges::min_element(steps);
    model_.step = *least;
    all.broadcast(model_.line, static_cast<int>(least - steps.begin()));
  }

  const Model& model() const { return model_; }

 private:
  // Does one step of gradient descent on the squared error over all ranks' points. The points lie on y = 3 + 2 x.
  void step(Communicator& all) {
    std::array<double, 3> sums = {0, 0, 0};
    for (int i = 0; i < 100; ++i) {
      const double x = (rank_ * 100 + i) % 37 / 37.0;
      const double wrong = model_.line[0] + model_.line[1] * x - (3 + 2 * x);
      sums[0] += wrong;
      sums[1] += wrong * x;
      sums[2] += 1;
    }
    all.all_reduce(sums, lockstep::sum);
    for (std::size_t i = 0; i < 2; ++i) model_.line[i] -= 0.5 * sums[i] / sums[2];
    ++model_.step;
  }

  int rank_;
  int steps_;
  std::map<int, int> deaths_;
  Model model_;
};

// Trains until all steps are done. After each death it continues with the survivors.
void run(Communicator& world, Training& training, const std::string& path) {
  Communicator all = world.duplicate("training");
  for (;;) {
    try {
      if (all.size() < world.size()) training.go_on(all);
      training.run(all);
      all.barrier();
      break;
    } catch (const lockstep::Error& error) {
      if (error.code() != lockstep::Code::peer_failed) throw;
      const long long begin = now_us();
      all = all.shrink();
      if (all.rank() == 0)
        say(text(all.size(), " of ", world.size(), " go on at ", now_us(), ", ", (now_us() - begin) / 1000,
                 " ms after rank ", world.rank(), " heard: ", error.what()));
    }
  }
  const auto& [line, step] = training.model();
  if (all.rank() == 0) std::ofstream(path) << line[0] << ' ' << line[1] << '\n';
  say(text("rank ", world.rank(), " is rank ", all.rank(), " of ", all.size(), " after ", step, " steps: y = ", line[0],
           " + ", line[1], " x"));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string path = argc > 1 ? argv[1] : "line.txt";
    const int steps = argc > 2 ? std::stoi(argv[2]) : 3000;
    std::map<int, int> deaths;
    for (int i = 3; i < argc; ++i) {
      const std::string each = argv[i];
      deaths[std::stoi(each)] = std::stoi(each.substr(each.find('@') + 1));
    }
    lockstep::Session session = lockstep::start(argc, argv);
    Training training(session.rank(), steps, deaths);
    run(session.world(), training, path);
    return 0;
  } catch (const lockstep::Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(exit_of(error.code()));
  }
}
