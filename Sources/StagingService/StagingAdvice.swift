/// The recommended action after a failure, as a code that each program puts into words of its own.
@nonexhaustive
public enum StagingAdvice: String, Codable, Sendable, CaseIterable {
    // Network

    /// Check the network connection and the server.
    case checkNetwork
    /// Check the network connection and the proxy.
    case checkProxy
    /// Log in to the network.
    case logIn
    /// Pass a user name and a password, or a token.
    case passCredentials
    /// Pass a user name and a password for the proxy.
    case passProxyCredentials
    /// Wait, for the retry delay of the failure if it has one, and run again.
    case runAgainLater
    /// Correct the URL.
    case checkURL
    /// Correct the URL of the manifest.
    case checkManifestURL
    /// Check the path of a file URL, and that its disk is mounted, or tell the publisher that the file is missing.
    case checkSourceFile
    /// Let the user read the file that a file URL names.
    case permitReading
    /// Name the manifest's file, and not a directory or a device.
    case nameManifestFile
    /// Set this machine's clock.
    case checkClock
    /// Trust the server's certificate authority.
    case passAuthority
    /// Allow the use of the network.
    case goOnline

    // This machine

    /// Free space on the file system.
    case freeSpace
    /// Delete files, or use a file system with more inodes.
    case freeInodes
    /// Raise the limits of processes, open files and memory.
    case raiseLimits
    /// Boot a kernel with Landlock.
    case enableLandlock
    /// Boot a kernel with seccomp filters.
    case enableCallFilters
    /// Run downloader extensions on a kernel with seccomp filters.
    case enableCallFiltersForExtensions
    /// Run downloader extensions on a kernel with Landlock.
    case enableLandlockForExtensions
    /// Decode archives in a separate process, or run as another user than root.
    case decodeInProcess
    /// Make the file system writable, or use another container.
    case makeWritable
    /// Remove the object at the path, which is not a regular file.
    case removeFile

    // Container

    /// Run as the container's owner, or use another container.
    case runAsOwner
    /// Have the container of this user checked, whose owners or permissions are wrong.
    case checkContainer
    /// Wait until the other process has ended.
    case waitForProcess
    /// Stage the packs first, or name another container.
    case prefetchFirst
    /// Name an empty directory for the container, or one that does not exist.
    case nameEmptyDirectory
    /// Name a directory for the container: its path is that of a file, or is below one.
    case nameDirectory
    /// Use the version of StagePack that created the container.
    case useMakersVersion
    /// Remove the unreadable record; the next run writes it again.
    case removeRecord
    /// Stage packs in the container, which writes its missing record again.
    case restoreRecord
    /// Stage the damaged packs again.
    case repair
    /// Download the pack.
    case load
    /// Show the staged packs.
    case showStatus
    /// Release the pack's pin.
    case releasePin
    /// Raise the quota of the registration, or remove packs.
    case raiseQuota

    // Application

    /// Update the application.
    case updateApplication
    /// Start the application, which lifts the restrictions.
    case startApplication
    /// Tell the packager that the allowed domains lack a host, or start the application.
    case tellPackagerOfHost
    /// Tell the packager that the downloader extension fails.
    case tellPackagerOfExtension
    /// Correct the registration, or install the application's package again.
    case correctRegistration
    /// Install the application's package, or name a manifest.
    case installApplication
    /// Name a manifest or a registered application.
    case nameManifest

    // Request

    /// Run again, which resumes.
    case runAgain
    /// List the packs of the manifest.
    case listPacks
    /// List the files of the pack.
    case listFiles
    /// Name a file in the directory, or load the whole pack.
    case nameFileInDirectory
    /// Load the whole pack.
    case loadWholePack
    /// Use a newer version of StagePack.
    case updateStagePack

    // Publisher

    /// Have the publisher check the manifest.
    case checkManifest
    /// Set this machine's clock, or have the publisher renew the signed metadata.
    case renewMetadata
    /// Have the publisher compare the server's files with the signed ones.
    case distrustServer
    /// Compare the root with the publisher's; have the publisher compare the server's files with the signed
    /// ones.
    case compareRoot
    /// Run again with network access, which replaces the stored manifest.
    case fetchManifestAnew
    /// Name the registered application, or the file of its root metadata.
    case nameRoot
    /// Have the publisher rename the pack, or use another container.
    case separatePacks
    /// Omit the root; the application's registration names it.
    case useRegisteredRoot
    /// Have the manifest served over https.
    case serveSecurely
    /// Correct the URL of the manifest, or the application that it has to be for.
    case correctApplication
    /// Tell the publisher that the manifest names local files.
    case tellPublisherOfLocalFiles
    /// Tell the publisher that the revision decreased.
    case tellPublisherOfRevision
    /// Tell the publisher that the server's file differs from the one in the manifest.
    case tellPublisherOfOtherFile
    /// Tell the publisher that the server lacks the file.
    case tellPublisherOfMissingFile
    /// Tell the publisher that the server refuses to send the file.
    case tellPublisherOfRefusal
    /// Tell the publisher that a URL or the server must be changed.
    case tellPublisherOfServer
    /// Tell the publisher that the manifest exceeds the limit of its size.
    case tellPublisherOfManifestSize
    /// Tell the publisher that the server must not apply a content encoding to the file.
    case tellPublisherOfEncoding
    /// Tell the publisher that the server violates HTTP.
    case tellPublisherOfProtocol
    /// Tell the publisher that the index is damaged.
    case tellPublisherOfIndex
    /// Tell the publisher that the sizes or counts in the manifest are wrong.
    case tellPublisherOfFigures
    /// Tell the publisher to package the pack again.
    case tellPublisherToPackage
    /// Try once more; tell the publisher if it fails again.
    case runAgainThenTellPublisher
}
