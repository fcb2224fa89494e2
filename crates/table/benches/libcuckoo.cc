// The fill and the lookups of `compare_maps.rs` for libcuckoo, the paper's authors' library, which
// has no Rust binding. Prints M operations/s for 2 threads; the clock is the processor time per
// thread, as with `--clock cpu` there, or with a third argument "wall" the clock on the wall.
//
//   apt-get install libcuckoo-dev g++
//   g++ -O3 -std=c++17 -pthread -o target/libcuckoo crates/table/benches/libcuckoo.cc
//   target/libcuckoo 25 4000000        (2^25 slots, lookups)
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <libcuckoo/cuckoohash_map.hh>
#include <thread>
#include <vector>

static uint64_t key(uint64_t index) {
    uint64_t word = index + 0x9e3779b97f4a7c15;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
}

// The same work as the hash of the Rust tables: a 128-bit multiplication and a mixer.
struct Hash {
    size_t operator()(uint64_t word) const {
        unsigned __int128 multiplier =
            ((unsigned __int128)0x9d5c71a30e41b6f7 << 64) | 0x52c844be93a1670d;
        uint64_t linear = (multiplier * word + 0x123456789abcdef1) >> 64;
        linear = (linear ^ (linear >> 32)) * 0xd6e8feb86659fd93;
        linear = (linear ^ (linear >> 32)) * 0xd6e8feb86659fd93;
        return linear ^ (linear >> 32);
    }
};

static bool wall;

static double timed(const std::function<void(int)> &work) {
    double seconds[2];
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 2; thread++)
        threads.emplace_back([&, thread] {
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET(thread, &set);
            pthread_setaffinity_np(pthread_self(), sizeof set, &set);
            clockid_t clock = wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
            timespec from, to;
            clock_gettime(clock, &from);
            work(thread);
            clock_gettime(clock, &to);
            seconds[thread] = to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9;
        });
    for (auto &thread : threads) thread.join();
    return wall ? std::max(seconds[0], seconds[1]) : (seconds[0] + seconds[1]) / 2;
}

int main(int count, char **arguments) {
    uint64_t slots = 1ull << (count > 1 ? atoi(arguments[1]) : 25);
    uint64_t lookups = count > 2 ? atoll(arguments[2]) : 4000000;
    wall = count > 3 && !strcmp(arguments[3], "wall");
    uint64_t items = slots * 95 / 100, middle = items * 75 / 95;
    libcuckoo::cuckoohash_map<uint64_t, uint64_t, Hash> map(slots);
    auto fill = [&](uint64_t from, uint64_t to) {
        return timed([&, from, to](int thread) {
            for (uint64_t index = from + thread; index < to; index += 2)
                map.insert(key(index), index);
        });
    };
    double low = fill(0, middle), high = fill(middle, items);
    double hit = timed([&](int thread) {
        uint64_t random = thread + 7, value;
        for (uint64_t turn = 0; turn < lookups / 2; turn++) {
            random = random * 0x5851f42d4c957f2d + 0x14057b7ef767814f;
            uint64_t index = ((random >> 32) * items) >> 32;
            if (!map.find(key(index), value) || value != index) abort();
        }
    });
    printf("fill 2 %.2f, 0-75 %% %.2f, 75-95 %% %.2f, hit 2 %.2f, load %.3f\n",
           items / (low + high) / 1e6, middle / low / 1e6, (items - middle) / high / 1e6,
           lookups / hit / 1e6, map.load_factor());
}
