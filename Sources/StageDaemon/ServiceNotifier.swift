import CSystemd
import Glibc

/// Tells the service manager how the daemon is (sd_notify(3)), where there is one that listens.
struct ServiceNotifier: Sendable {
    /// The time after which the service manager is told again that the daemon is alive; `nil` if it does not
    /// want to know (sd_watchdog_enabled(3)).
    private let watchdogInterval: Duration?

    /// Learns from the environment what the service manager wants of this process.
    init() {
        var limit: UInt64 = 0
        let isWatched = unsafe sd_watchdog_enabled(0, &limit) > 0
        watchdogInterval = isWatched ? .microseconds(Int64(clamping: limit / 2)) : nil
    }

    /// Tells the service manager a state, such as `READY=1`.
    func notify(_ text: String) {
        // What cannot be said cannot be said: the daemon works all the same.
        unsafe _ = sd_notify(0, text)
    }

    /// The monotonic time in microseconds, which a message of a reload must have.
    static var now: Int64 {
        var time = timespec()
        guard unsafe clock_gettime(CLOCK_MONOTONIC, &time) == 0 else { return 0 }
        return Int64(time.tv_sec) * 1_000_000 + Int64(time.tv_nsec) / 1000
    }

    /// Says that the daemon is alive, as often as that is wanted, until the task is cancelled.
    func keepAlive(_ isAlive: () async -> Void) async {
        guard let watchdogInterval else { return }
        while (try? await Task.sleep(for: watchdogInterval)) != nil {
            await isAlive()
            notify("WATCHDOG=1")
        }
    }
}
