import BackgroundAssets

/// A program in the shape of Apple's documentation, without any API of this package's own.
struct BackgroundDownloadHandler: BADownloaderExtension {
    static let group = "com.example.aurora"

    func downloads(
        for request: BAContentRequest,
        manifestURL: URL,
        extensionInfo: BAAppExtensionInfo
    ) -> Set<BADownload> {
        let isEssential = request == .install || request == .update
        let allowance = extensionInfo.restrictedDownloadSizeRemaining ?? .max
        var downloads: Set<BADownload> = []
        if let url = URL(string: "https://cdn.example.com/first.bin") {
            var fields = URLRequest(url: url)
            fields.setValue("Bearer 3f1c", forHTTPHeaderField: "Authorization")
            downloads.insert(
                BAURLDownload(
                    identifier: "first",
                    request: fields,
                    essential: isEssential,
                    fileSize: 1024,
                    applicationGroupIdentifier: Self.group,
                    priority: .max
                )
            )
        }
        if allowance > 4096, let url = URL(string: "https://cdn.example.com/later.bin") {
            downloads.insert(
                BAURLDownload(
                    identifier: "later",
                    request: URLRequest(url: url),
                    fileSize: 4096,
                    applicationGroupIdentifier: Self.group
                )
            )
        }
        return downloads
    }

    func backgroundDownload(
        _ download: BADownload,
        didReceive challenge: URLAuthenticationChallenge
    ) async -> (URLSession.AuthChallengeDisposition, URLCredential?) {
        guard
            challenge.protectionSpace.authenticationMethod == NSURLAuthenticationMethodHTTPBasic,
            challenge.protectionSpace.host == "cdn.example.com"
        else { return (.cancelAuthenticationChallenge, nil) }
        return (
            .useCredential,
            URLCredential(user: "aurora", password: download.identifier, persistence: .none)
        )
    }

    func backgroundDownload(_ finishedDownload: BADownload, finishedWithFileURL fileURL: URL) {
        BADownloadManager.shared.withExclusiveControl { acquiredLock, error in
            guard acquiredLock, error == nil,
                let folder = FileManager.default
                    .containerURL(forSecurityApplicationGroupIdentifier: Self.group)
            else { return }
            let target = folder.appending(path: finishedDownload.identifier)
            do {
                try FileManager.default.moveItem(at: fileURL, to: target)
            } catch {
                print("the file stays: \(error)")
            }
        }
    }

    func backgroundDownload(_ failedDownload: BADownload, failedWithError error: any Error) {
        guard type(of: failedDownload) == BAURLDownload.self, failedDownload.isEssential else {
            return
        }
        do {
            let optional = failedDownload.removingEssential()
            try BADownloadManager.shared.scheduleDownload(optional)
        } catch {
            print("it is not asked for again: \(error)")
        }
    }
}

/// A program that only selects packs, and leaves the rest to the policies.
struct ManagedHandler: ManagedDownloaderExtension {
    func shouldDownload(_ assetPack: AssetPack) -> Bool {
        guard let data = assetPack.userInfo else { return true }
        let notes = try? JSONDecoder().decode([String: String].self, from: data)
        return notes?["quality"] != "uhd"
    }
}

/// A program with the default implementations only.
struct IdleHandler: BADownloaderExtension {}

/// An application with managed packs, in the same shape.
struct TutorialLoader {
    var manager = AssetPackManager.shared

    /// Returns the tutorial's text, after downloading the pack if needed, and the last progress.
    func load(_ path: FilePath, of id: String) async -> (text: String, fraction: Double) {
        let updates = manager.statusUpdates(forAssetPackWithID: id)
        async let fraction = follow(updates)
        do {
            let pack = try await manager.assetPack(withID: id)
            try await manager.ensureLocalAvailability(of: pack, requireLatestVersion: true)
            guard try await manager.status(relativeTo: pack).contains(.upToDate) else {
                return ("outdated", await fraction)
            }
            let file = try manager.descriptor(for: path, searchingInAssetPackWithID: id)
            try file.close()
            let data = try manager.contents(at: path)
            return (String(decoding: data, as: UTF8.self), await fraction)
        } catch ManagedBackgroundAssetsError.fileNotFound(let path) {
            return ("no \(path)", await fraction)
        } catch {
            return (error.localizedDescription, 0)
        }
    }

    private func follow(
        _ updates: some AsyncSequence<AssetPackManager.DownloadStatusUpdate, Never>
    ) async -> Double {
        var fraction = 0.0
        for await update in updates {
            switch update {
            case .began, .paused: break
            case .downloading(_, let progress):
                fraction = Double(progress.completedUnitCount) / Double(progress.totalUnitCount)
            case .finished: fraction = 1
            case .failed(let pack, let error): print("\(pack.id): \(error.localizedDescription)")
            @unknown default: break
            }
        }
        return fraction
    }

    /// Makes all packs available, and returns the ids of those that failed.
    func loadAll() async throws -> [String] {
        do {
            let manifest = try await manager.manifest
            try await manager.ensureLocalAvailability(of: manifest.assetPacks)
            return []
        } catch let error as AssetPackManager.LocalAvailabilityError {
            return error.failures.keys.map(\.id).sorted()
        }
    }
}
