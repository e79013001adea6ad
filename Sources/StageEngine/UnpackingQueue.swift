/// Limits the number of packs that are unpacked, or made by patches, concurrently, in order of arrival.
///
/// Unpacking one pack already uses the processors; more at a time would only cost memory and, in the command
/// line tool, a process each.
actor UnpackingQueue {
    private var free: Int
    private var waiting: [CheckedContinuation<Void, Never>] = []

    init(width: Int) {
        free = width
    }

    /// Runs `body` as soon as a slot is free.
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
