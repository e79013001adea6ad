import BackgroundAssets

/// A program in the shape that Apple's documentation shows, without a word of this package's own.
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

/// A program that leaves all but the choice to the policies.
struct ManagedHandler: ManagedDownloaderExtension {
    func shouldDownload(_ assetPack: AssetPack) -> Bool {
        guard let data = assetPack.userInfo else { return true }
        let notes = try? JSONDecoder().decode([String: String].self, from: data)
        return notes?["quality"] != "uhd"
    }
}

/// A program that does nothing of its own.
struct IdleHandler: BADownloaderExtension {}
