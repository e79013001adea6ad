import CSystemd
import Glibc

/// Sends state changes to the service manager, if there is one (sd_notify(3)).
struct ServiceNotifier: Sendable {
    /// Interval of watchdog messages: half of the service manager's timeout; `nil` without a watchdog
    /// (sd_watchdog_enabled(3)).
    private let watchdogInterval: Duration?

    /// Reads the service manager's requirements from the environment.
    init() {
        var limit: UInt64 = 0
        let isWatched = unsafe sd_watchdog_enabled(0, &limit) > 0
        watchdogInterval = isWatched ? .microseconds(Int64(clamping: limit / 2)) : nil
    }

    /// Sends a state, such as `READY=1`.
    func notify(_ text: String) {
        // Errors are ignored: the daemon works without a service manager.
        unsafe _ = sd_notify(0, text)
    }

    /// Monotonic time in microseconds, a required part of reload messages.
    static var now: Int64 {
        var time = timespec()
        guard unsafe clock_gettime(CLOCK_MONOTONIC, &time) == 0 else { return 0 }
        return Int64(time.tv_sec) * 1_000_000 + Int64(time.tv_nsec) / 1000
    }

    /// Sends watchdog messages until the task is cancelled; waits for `isAlive` before each.
    func keepAlive(_ isAlive: () async -> Void) async {
        guard let watchdogInterval else { return }
        while (try? await Task.sleep(for: watchdogInterval)) != nil {
            await isAlive()
            notify("WATCHDOG=1")
        }
    }
}
