import StageControl
import StageTesting
import Synchronization
import Testing

/// Tens of thousands of tasks of one client, while another client sends a request.
@Suite(.directory, .daemon)
struct CrowdTests {
    private let daemon: DaemonProcess

    init() async throws {
        daemon = try .required()
        try daemon.configure(#"{"settlingTime": 0, "retryBase": 600}"#)
        try await daemon.start()
        try await daemon.makeSession("crowd")
        try await daemon.makeSession("other")
    }

    /// Creates tasks in the session `crowd`, a thousand with each request.
    private func create(
        _ count: Int,
        with request: (Int) -> TransferRequest
    ) async throws {
        for start in stride(from: 0, to: count, by: 1000) {
            let requests = (start..<min(start + 1000, count)).map(request)
            _ = try await daemon.client.createTasks(requests, in: "crowd")
        }
    }

    @Test(.alone) func othersAreAnsweredWhileThousandsOfTasksAreForgotten() async throws {
        try await create(3000) { number in
            var request = TransferRequest(token: "\(number)", kind: .download, url: "http://a/")
            request.isSuspended = true
            return request
        }
        let hasEnded = Mutex(false)
        async let removal: Void = {
            defer { hasEnded.withLock { $0 = true } }
            try await daemon.client.removeSession("crowd")
        }()
        var longest = Duration.zero
        while !hasEnded.withLock({ $0 }) {
            let asked = ContinuousClock.now
            #expect(try await daemon.client.session("other").lastEvent == 0)
            longest = max(longest, ContinuousClock.now - asked)
        }
        try await removal
        // A response takes some milliseconds; if the removal made no pauses, it would take some seconds in a debug build.
        #expect(longest < .seconds(1), "\(longest)")
        #expect(try await daemon.client.tasks().isEmpty)
    }

    @Test(.alone) func othersAreAnsweredBesideTensOfThousandsOfHosts() async throws {
        try await create(30_000) { number in
            let host = "127.\(1 + number / 62_500).\(number / 250 % 250).\(1 + number % 250)"
            return TransferRequest(token: "\(number)", kind: .download, url: "http://\(host):9/")
        }
        let began = ContinuousClock.now
        for number in 0..<20 {
            let url = "http://127.0.0.1:9/"
            let request = TransferRequest(token: "\(number)", kind: .download, url: url)
            _ = try await daemon.client.createTasks([request], in: "other")
        }
        // This takes some hundredths of a second; if each request made the scheduler check all tasks, ten to thirty seconds.
        let duration = ContinuousClock.now - began
        #expect(duration < .seconds(5), "\(duration)")
    }
}
