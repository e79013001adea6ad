public import FoundationEssentials
public import StageModel

extension PackStore {
    /// Returns the directory of a pack, after fetching the pack if it is not staged.
    ///
    /// - Throws: ``PackStoreError``; see ``PackStoreError/retryAdvice``. After a timeout or a cancellation,
    ///   the next call resumes the download.
    public func loadPack(
        _ id: PackID,
        options: LoadOptions = LoadOptions()
    ) async throws(PackStoreError) -> URL {
        if let url = try localURL(for: id) { return url }
        return try await updatePack(id, options: options)
    }

    /// Returns the directory of a pack in its newest version, as the method with a `PackID` does.
    ///
    /// - Parameters:
    ///   - id: The ID of the pack.
    ///   - options: Options for fetching the pack.
    ///   - report: Receives the progress of the fetch; calls do not overlap.
    /// - Returns: The directory.
    /// - Throws: ``PackStoreError/invalidID(_:)`` if `id` is not a valid ID of a pack; the other errors of the method with a
    ///   `PackID`.
    public func updatePack(
        _ id: String,
        options: LoadOptions = LoadOptions(),
        report: @escaping @Sendable (FetchProgress) -> Void = { _ in }
    ) async throws(PackStoreError) -> URL {
        try await updatePack(Self.packID(id), options: options, report: report)
    }
}
