/// The one thing to do about a failure, as a code: a program says it in words of its own.
@nonexhaustive
public enum StagingAdvice: String, Codable, Sendable, CaseIterable {
    // Of the network

    /// Look after the network and the server.
    case checkNetwork
    /// Log in to the network.
    case logIn
    /// Name a user and a password, or a token.
    case passCredentials
    /// Name a user and a password for the proxy.
    case passProxyCredentials
    /// Wait, for the time that the failure names, if it names one.
    case runAgainLater
    /// Correct the URL.
    case checkURL
    /// Correct the URL of the manifest.
    case checkManifestURL
    /// Set this machine's clock.
    case checkClock
    /// Trust the server's certificate authority.
    case passAuthority
    /// Allow the use of the network.
    case goOnline

    // Of this machine

    /// Make room on the file system.
    case freeSpace
    /// Raise the limits of processes, open files and memory.
    case raiseLimits
    /// Boot a kernel with Landlock.
    case enableLandlock
    /// Boot a kernel with seccomp filters.
    case enableCallFilters
    /// Run downloader extensions where there are seccomp filters.
    case enableCallFiltersForExtensions
    /// Run downloader extensions where there is Landlock.
    case enableLandlockForExtensions
    /// Decode archives in a process of their own, or as another user than root.
    case decodeInProcess
    /// Make the file system writable, or use another container.
    case makeWritable
    /// Remove the file that is in the way.
    case removeFile

    // Of the container

    /// Run as the container's owner, or use another container.
    case runAsOwner
    /// Wait until the other process has ended.
    case waitForProcess
    /// Stage the packs first, or name another container.
    case prefetchFirst
    /// Name an empty directory for the container, or one that does not exist.
    case nameEmptyDirectory
    /// Use the version of StagePack that made the container.
    case useMakersVersion
    /// Remove the record that cannot be read; the next run writes it again.
    case removeRecord
    /// Have the damaged packs staged again.
    case repair
    /// Have the pack fetched.
    case load
    /// Bring back the version before.
    case rollBack
    /// Look at what is staged.
    case showStatus
    /// Release the pack's pin.
    case releasePin
    /// Raise the quota of the registration, or remove packs.
    case raiseQuota

    // Of the application

    /// Update the application.
    case updateApplication
    /// Start the application, which ends the restrictions.
    case startApplication
    /// Tell the packager that the restrictions lack a host, or start the application.
    case tellPackagerOfHost
    /// Tell the packager of the downloader extension's fault.
    case tellPackagerOfExtension
    /// Correct the registration, or install the application's package again.
    case correctRegistration
    /// Install the application's package, or name a manifest.
    case installApplication
    /// Name a manifest or a registered application.
    case nameManifest

    // Of the request

    /// Do the same again: it goes on where this one ended.
    case runAgain
    /// Look at the packs that there are.
    case listPacks
    /// Look at the files that the pack has.
    case listFiles
    /// Name a file in the directory, or load the whole pack.
    case nameFileInDirectory
    /// Load the whole pack.
    case loadWholePack
    /// Use a newer version of StagePack.
    case updateStagePack

    // Of the publisher

    /// Have the publisher check the manifest.
    case checkManifest
    /// Set this machine's clock, or have the publisher renew the signed metadata.
    case renewMetadata
    /// Have the publisher compare what the server has with what was signed.
    case distrustServer
    /// Compare the root with the publisher's; have the publisher compare what the server has with what was signed.
    case compareRoot
    /// Run again with the network: what is stored of the manifest is replaced then.
    case fetchManifestAnew
    /// Name the registered application, or the file of its root metadata.
    case nameRoot
    /// Have the pack named otherwise, or use another container.
    case separatePacks
    /// Leave the root to the application's registration.
    case useRegisteredRoot
    /// Have the manifest served over https.
    case serveSecurely
    /// Correct the URL, or use another container.
    case useOtherContainer
    /// Tell the publisher that the manifest names local files.
    case tellPublisherOfLocalFiles
    /// Tell the publisher that the revision decreased.
    case tellPublisherOfRevision
    /// Tell the publisher that the server has another file than the manifest names.
    case tellPublisherOfOtherFile
    /// Tell the publisher that the server lacks the file.
    case tellPublisherOfMissingFile
    /// Tell the publisher that the server does not give the file.
    case tellPublisherOfRefusal
    /// Tell the publisher that an address or the server must be changed.
    case tellPublisherOfServer
    /// Tell the publisher that the server must not encode the file.
    case tellPublisherOfEncoding
    /// Tell the publisher that the server does not follow HTTP.
    case tellPublisherOfProtocol
    /// Tell the publisher that the index is damaged.
    case tellPublisherOfIndex
    /// Tell the publisher that the manifest's figures are not exact.
    case tellPublisherOfFigures
    /// Tell the publisher to package the pack again.
    case tellPublisherToPackage
    /// Try once more; tell the publisher if it fails again.
    case runAgainThenTellPublisher
}
