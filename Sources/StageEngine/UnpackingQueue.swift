/// Lets a few packs be unpacked at a time, in the order in which they ask.
///
/// Unpacking one pack keeps the processors busy by itself; more at once would only cost memory and,
/// in the command line, a process each.
actor UnpackingQueue {
    private var free: Int
    private var waiting: [CheckedContinuation<Void, Never>] = []

    init(width: Int) {
        free = width
    }

    /// Runs `body` when its turn has come.
    func run<Result: Sendable, Failure: Error>(
        _ body: @Sendable () async throws(Failure) -> Result
    ) async throws(Failure) -> Result {
        if free > 0 {
            free -= 1
        } else {
            await withCheckedContinuation { waiting.append($0) }
        }
        defer {
            if waiting.isEmpty {
                free += 1
            } else {
                waiting.removeFirst().resume()
            }
        }
        return try await body()
    }
}
