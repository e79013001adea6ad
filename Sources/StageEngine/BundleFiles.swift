import StageContainer
import StageIndex
import StageModel
import StageSystem
import StageTransfer

/// A complete bundle in an open file, which stays readable after its name is removed.
final class BundleFile: Sendable {
    private let part: PartialFile
    private let file: File

    init(_ part: PartialFile) throws(FileError) {
        self.part = part
        file = try File.open(readingRegular: part.path)
    }

    /// Reads bytes of the bundle; returns fewer if the file ends before the range does.
    func bytes(in range: Range<Int64>) throws(FileError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: range.count)
        let count = try file.read(into: &bytes, at: range.lowerBound)
        bytes.removeLast(bytes.count - count)
        return bytes
    }

    /// Removes the file.
    ///
    /// The caller holds the download lock.
    func remove() throws(TransferError) { try part.remove() }
}

/// Complete bundles in files, for servers that do not support range requests.
actor BundleFiles {
    private let source: IndexSource
    private let index: ContentIndex
    /// `true` if complete bundles may be downloaded.
    let isAllowed: Bool
    private var files: [Int: Task<Result<BundleFile, StageError>, Never>] = [:]

    init(source: IndexSource, index: ContentIndex, isAllowed: Bool) {
        self.source = source
        self.index = index
        self.isAllowed = isAllowed
    }

    /// Returns the file of a bundle, after downloading it unless that has happened.
    func file(of number: Int) async throws(StageError) -> BundleFile {
        let bundle = index.bundles[number]
        let task: Task<Result<BundleFile, StageError>, Never>
        if let running = files[number] {
            task = running
        } else {
            task = Task { [source] in
                await Result { () async throws(StageError) in try await source.download(bundle) }
            }
            files[number] = task
        }
        let result = await withTaskCancellationHandler {
            await task.value
        } onCancel: {
            task.cancel()
        }
        return try result.get()
    }

    /// Removes the downloaded bundles.
    ///
    /// Incomplete downloads stay for a later run to resume.
    func remove() async {
        for (number, task) in files {
            let name = ContainerLayout.downloadName(of: index.bundles[number].digest)
            // Another process that holds the lock needs the file and removes it. A later sweep removes a file
            // that cannot be removed now.
            guard case .success(let bundle) = await task.value,
                let lock = try? source.work.container.attemptDownloadLock(name)
            else { continue }
            try? bundle.remove()
            lock.end()
        }
        files = [:]
    }
}

extension IndexSource {
    /// Returns the URLs of a bundle, in order of preference.
    func urls(of bundle: ContentIndex.Bundle) -> [String] {
        work.manifest.manifest.urls(
            forBundle: bundle.digest,
            of: reference,
            manifestURL: work.manifest.record.resolvedURL
        )
    }

    /// Downloads a complete bundle.
    ///
    /// - Throws: ``StageError/noSpace(needed:available:)`` if it does not fit: a plan does not count complete bundles.
    fileprivate func download(
        _ bundle: ContentIndex.Bundle
    ) async throws(StageError) -> BundleFile {
        let lock = try await work.downloadLock(bundle.digest)
        defer { lock.end() }
        let reader = work.container.reader
        let held = try await StageError.blocking { () throws(ContainerError) in
            try reader.downloadedSizes()[bundle.digest] ?? .zero
        }
        let free = try await StageError.blocking { () throws(ContainerError) in
            ByteCount(try reader.freeSpace().bytes)
        }
        let missing = max(.zero, ByteCount(bundle.size) - held)
        if let shortage = AvailableSpace(free).shortage(for: missing) {
            throw StageError(shortage)
        }
        let part = try await work.download(
            bundle.digest,
            size: ByteCount(bundle.size),
            from: urls(of: bundle),
            reportsBytes: false
        ).part
        return try StageError.wrapping { () throws(FileError) in try BundleFile(part) }
    }
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
