import StageModel

extension Stager {
    /// Runs `body` for the index of each indexed pack, at most ``StagerOptions/concurrentPacks`` at a time, and returns the
    /// results by pack.
    ///
    /// - Parameters:
    ///   - packs: The packs; those without an index are omitted.
    ///   - manifest: The manifest that offers them.
    ///   - isTriedOnce: Pass `true` to repeat no failed request.
    ///   - body: Fetches the index; `nil` for no result.
    /// - Returns: The results.
    func withIndexes<Value: Sendable>(
        of packs: [Pack],
        from manifest: AcceptedManifest,
        isTriedOnce: Bool = false,
        _ body: @escaping @Sendable (IndexFetch) async -> Value?
    ) async -> [PackID: Value] {
        await withTaskGroup(of: (PackID, Value)?.self) { group in
            var values: [PackID: Value] = [:]
            var running = 0
            for pack in packs {
                guard let reference = pack.index else { continue }
                if running == options.concurrentPacks, let result = await group.next() {
                    if let (id, value) = result { values[id] = value }
                    running -= 1
                }
                running += 1
                group.addTask {
                    let fetching = PackFetching(
                        stager: self,
                        manifest: manifest,
                        pack: pack,
                        report: { _ in },
                        isTriedOnce: isTriedOnce
                    )
                    let value = await body(IndexFetch(fetching: fetching, reference: reference))
                    return value.map { (pack.id, $0) }
                }
            }
            for await result in group {
                if let (id, value) = result { values[id] = value }
            }
            return values
        }
    }
}
