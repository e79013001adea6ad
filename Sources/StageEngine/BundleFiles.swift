import StageContainer
import StageDigest
import StageIndex
import StageModel
import StageSystem
import StageTransfer

/// Whole bundles in files, from servers that give no parts.
actor BundleFiles {
    private let work: IndexedWork
    private let index: ContentIndex
    private var files: [Int: Task<Result<PartFile, StageError>, Never>] = [:]

    init(work: IndexedWork, index: ContentIndex) {
        self.work = work
        self.index = index
    }

    /// Returns the file of a bundle, after fetching all of it.
    func file(of number: Int) async throws(StageError) -> PartFile {
        let bundle = index.bundles[number]
        let task: Task<Result<PartFile, StageError>, Never>
        if let running = files[number] {
            task = running
        } else {
            task = Task { [work] in
                await Result { () async throws(StageError) in try await work.download(bundle) }
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

    /// Removes what is not needed any more; what was not complete stays for a later run.
    func remove() async {
        for task in files.values {
            // What cannot be removed now is removed by a sweep.
            if case .success(let part) = await task.value { try? part.remove() }
        }
        files = [:]
    }
}

extension IndexedWork {
    /// Where a bundle is, in the order in which to ask.
    func urls(of bundle: ContentIndex.Bundle) -> [String] {
        manifest.manifest.urls(
            forBundle: bundle.digest,
            of: reference,
            manifestURL: manifest.record.resolvedURL
        )
    }

    /// Reads bytes of a bundle that is here; fewer where it is shorter.
    func bytes(
        of bundle: PartFile,
        in range: Range<Int64>
    ) async throws(StageError) -> [UInt8] {
        try await blocking { () throws(StageError) in
            try Self.storing { () throws(FileError) in
                var bytes = [UInt8](repeating: 0, count: range.count)
                let count = try File.open(readingRegular: bundle.path).read(
                    into: &bytes,
                    at: range.lowerBound
                )
                bytes.removeLast(bytes.count - count)
                return bytes
            }
        }
    }

    /// Fetches a bundle whole.
    fileprivate func download(
        _ bundle: ContentIndex.Bundle
    ) async throws(StageError) -> PartFile {
        let digest = bundle.digest
        var request = DownloadRequest(mirrors: urls(of: bundle), size: ByteCount(bundle.size)) {
            path throws(TransferError) in
            do throws(FileError) {
                return try Digest(of: try File.open(readingRegular: path)) == digest
            } catch {
                throw .storage(error)
            }
        } report: { [report] event in
            StagingEvent(event).map(report)
        }
        request.allowedDomains = stager.options.allowedDomains.map(AllowedDomains.init)
        request.priority = pack.priority
        request.isContentAddressed = true
        let name = ContainerLayout.downloadName(of: digest)
        let lock = try await ContainerLocks.take(report) { [container] () throws(ContainerError) in
            try container.attemptDownloadLock(name)
        }
        defer { lock.end() }
        do throws(TransferError) {
            let part = try PartFile.open(name, in: container.downloads)
            _ = try await stager.engine.download(request, to: part)
            return part
        } catch {
            throw error == .cancelled ? .cancelled : .transfer(error)
        }
    }
}

extension Result where Success: Sendable, Failure: Sendable {
    /// What an asynchronous body returns or throws.
    init(_ body: () async throws(Failure) -> Success) async {
        do throws(Failure) {
            self = .success(try await body())
        } catch {
            self = .failure(error)
        }
    }
}
