/// The result of one of two operations.
private enum Part<First: Sendable, Second: Sendable>: Sendable {
    case first(Result<First, StageError>)
    case second(Result<Second, StageError>)
}

/// Runs two operations concurrently.
///
/// If one fails, cancels the other and waits for it.
func withBoth<First: Sendable, Second: Sendable>(
    _ first: @escaping @Sendable () async -> Result<First, StageError>,
    and second: @escaping @Sendable () async -> Result<Second, StageError>
) async throws(StageError) -> (First, Second) {
    let both = await withTaskGroup(of: Part<First, Second>.self) { group in
        group.addTask { .first(await first()) }
        group.addTask { .second(await second()) }
        var (first, second): (First?, Second?)
        var failure: StageError?
        for await part in group {
            switch part {
            case .first(.success(let value)): first = value
            case .second(.success(let value)): second = value
            case .first(.failure(let error)), .second(.failure(let error)):
                // The first error is the cause; the second may be a consequence of the cancellation.
                failure = failure ?? error
                group.cancelAll()
            }
        }
        guard let first, let second else {
            return Result<(First, Second), StageError>.failure(failure ?? .cancelled)
        }
        return .success((first, second))
    }
    return try both.get()
}

extension Result where Success: Sendable, Failure: Sendable {
    /// Creates the result of an asynchronous body, from its value or the error that it throws.
    init(_ body: () async throws(Failure) -> Success) async {
        do throws(Failure) {
            self = .success(try await body())
        } catch {
            self = .failure(error)
        }
    }
}
