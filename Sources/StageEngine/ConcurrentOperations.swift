import StageModel

/// The result of an operation, and what it transferred, also if it failed.
private struct CountedResult<Value: Sendable>: Sendable {
    let result: Result<Value, StageError>
    let figures: StagingFigures

    /// Runs an operation, which counts in the given figures.
    init(_ body: (inout StagingFigures) async throws(StageError) -> Value) async {
        var figures = StagingFigures(transferred: .zero, reused: .zero, source: nil)
        do throws(StageError) {
            result = .success(try await body(&figures))
        } catch {
            result = .failure(error)
        }
        self.figures = figures
    }
}

extension IndexSource {
    /// Fetches a delta of the index, and concurrently downloads the object whose content completes it: the manifest names both,
    /// so that neither has to wait for the other.
    ///
    /// - Parameters:
    ///   - delta: The delta.
    ///   - figures: Receives the number of bytes transferred and their source.
    ///   - download: Downloads the object.
    /// - Returns: The bytes of the delta, `nil` if no server sends it, and the object; either may have failed.
    /// - Throws: Nothing: the results have the errors.
    func fetch<Object: Sendable>(
        _ delta: PackIndex.CompanionDelta,
        countingIn figures: inout StagingFigures,
        while download:
            @escaping @Sendable (inout StagingFigures) async throws(StageError) -> Object
    ) async throws(StageError) -> (
        delta: Result<[UInt8]?, StageError>, object: Result<Object, StageError>
    ) {
        let fetch = indexFetch
        let (fetched, downloaded) = try await withBoth {
            .success(
                await CountedResult { (figures) async throws(StageError) in
                    try await fetch.companionDelta(delta, countingIn: &figures)
                }
            )
        } and: {
            .success(await CountedResult(download))
        }
        figures.add(fetched.figures)
        figures.add(downloaded.figures)
        return (fetched.result, downloaded.result)
    }
}

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
